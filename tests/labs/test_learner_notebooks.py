"""The learner's notebooks as they are built, with nothing solved: what fails says which exercise is wanted."""

from pathlib import Path

import nbformat
import pytest

LABS = Path(__file__).resolve().parents[2] / "labs"


@pytest.mark.parametrize("path", sorted(LABS.glob("[0-9]*.ipynb")), ids=lambda path: path.stem)
def test_no_output_holds_a_name_error(path: Path) -> None:
    """A skipped exercise says "your code here", also in later cells: no name is simply missing."""
    cells = nbformat.read(path, as_version=4).cells
    assert not [cell.id for cell in cells for output in cell.get("outputs", []) if "NameError" in str(output)]
