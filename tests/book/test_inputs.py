"""What makes the book be executed again, and what only makes its pages be rendered again."""

from pathlib import Path

import pytest
from book_inputs import execution_key, page_key

FILES = (
    "book/01-x.md", "book/figures/01_x.json", "book/questions/01.py", "book/_ext/kvedu_x.py", "book/_static/kvedu.css",
    "book/vendor/package-lock.json", "bench/results/x.json", "constraints.txt", "_config.yml", "library/kvedu/units.py",
    "library/kvedu/viz/memory.js", "library/kvedu/viz/runtime/kvfig.css", "library/kvedu/analysis/known_models.json",
)  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("old")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "executes"),
    [
        ("book/figures/01_x.json", True), ("bench/results/x.json", True), ("constraints.txt", True),
        ("library/kvedu/units.py", True), ("library/kvedu/analysis/known_models.json", True),
        ("book/01-x.md", False), ("book/questions/01.py", False), ("book/_ext/kvedu_x.py", False),
        ("book/_static/kvedu.css", False), ("book/vendor/package-lock.json", False), ("_config.yml", False),
        ("library/kvedu/viz/memory.js", False), ("library/kvedu/viz/runtime/kvfig.css", False),
    ],
)  # fmt: skip
def test_a_change(root: Path, name: str, executes: bool) -> None:
    """Every input changes the pages; only what a cell can read makes cells run again."""
    package = root / "library" / "kvedu"
    before = execution_key(root, package), page_key(root, package)
    (root / name).write_text("new")
    after = execution_key(root, package), page_key(root, package)
    assert (before[0] != after[0]) == executes
    assert before[1] != after[1]
