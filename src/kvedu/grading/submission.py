"""A submitted notebook as its code cells, and which lab it is: read with care, since anybody may have written it."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from kvedu.errors import KveduError
from kvedu.grading.find import labs

LARGEST = 100 * 1000**2
"""Bytes of a file; more is not read."""


class Unreadable(KveduError):
    """A submission that cannot be graded; the text says why and what to do."""


@dataclass(frozen=True)
class Submission:
    """The code cells in order, each with its number among all cells, and the lab."""

    lab: str
    cells: tuple[tuple[int, str], ...]


def read_submission(path: Path, lab: str | None = None) -> Submission:
    """Read a notebook; ``lab`` (``"lab02"``) says which lab it must be. Raises ``Unreadable``."""
    size = path.stat().st_size
    if size > LARGEST:
        raise Unreadable(f"the file has {size / 1e6:.0f} MB, more than {LARGEST / 1e6:.0f}: clear the outputs and submit it again")
    if not size:
        raise Unreadable("the file is empty: save the notebook and submit it again")
    try:
        notebook = json.loads(path.read_bytes())
        cells = notebook["cells"]
        code, text = [], []
        for number, cell in enumerate(cells, 1):
            source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
            text.append(source)
            if cell["cell_type"] == "code" and source.strip():
                code.append((number, source))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unreadable(f"the file is not a notebook in Jupyter's format 4 ({type(error).__name__}): save it in JupyterLab or Colab and submit it again") from None
    found = lab_of(text)
    if lab and found and found != lab:
        raise Unreadable(f"this is a notebook of {found}, and {lab} was wanted")
    if not (lab or found):
        raise Unreadable(f"this notebook is of no lab: none of its cells checks an exercise of {', '.join(labs())}")
    if not code:
        raise Unreadable("the notebook has no code: save it with your cells and submit it again")
    return Submission(lab or found, tuple(code))


def lab_of(cells: list[str]) -> str:
    """The lab whose exercises or title the cells name most; ``""`` where they name none that exists."""
    known = set(labs())
    named = Counter(name for cell in cells for name in re.findall(r"\b(lab\d\d)\.[a-z_]", cell) if name in known)
    if named:
        return named.most_common(1)[0][0]
    titles = [f"lab{int(number):02d}" for cell in cells for number in re.findall(r"^# Lab (\d{1,2}) ·", cell, re.MULTILINE)]
    return next((title for title in titles if title in known), "")
