"""What a page says of a GPU: a number from a stored row of `make gpu`, or that there is none yet."""

from __future__ import annotations

from typing import Any

from kvedu.book.rows import Row, load_rows, rows_folder

NOT_YET = "not measured yet (run make gpu)"


def gpu_row(name: str) -> Row | None:
    """The newest row of ``bench/results/NAME.json`` that was measured on a GPU; None where there is none.

    ``name`` "kernels" (bench_kernels) or "nano" (bench_nano), or "gpu" for what `make gpu` itself stores, whatever the GPU's name.
    """
    folder = rows_folder()
    files = sorted(folder.glob("gpu_*.json")) if name == "gpu" else [folder / f"{name}.json"]
    found = [row for path in files if path.is_file() for row in load_rows(path.stem) if row.machine.get("gpu")]
    return max(found, key=lambda row: row.date, default=None)


def gpu_value(name: str, *path: str) -> Any | None:
    """One value of ``gpu_row``, by keys; a list of cases is entered by its case's ``name``. None where any of it is missing.

    ``gpu_value("kernels", "cases", "prefill 2 x 4096", "of_ceiling")``.
    """
    row = gpu_row(name)
    at: Any = None if row is None else row.values
    for key in path:
        if isinstance(at, list):
            at = next((one for one in at if isinstance(one, dict) and one.get("name") == key), None)
        else:
            at = at.get(key) if isinstance(at, dict) else None
    return at


def gpu_text(name: str, *path: str, form: str = "{:,.0f}", times: float = 1.0) -> str:
    """``gpu_value`` in words for a page, multiplied by ``times``; ``NOT_YET`` where there is none.

    >>> gpu_text("no such row", "cases", form="{:.0%}")
    'not measured yet (run make gpu)'
    """
    value = gpu_value(name, *path)
    return NOT_YET if value is None else form.format(value * times if times != 1 else value)


def gpu_source(name: str) -> str:
    """Where ``gpu_row`` was measured: GPU, date, commit and command; ``NOT_YET`` where there is none."""
    row = gpu_row(name)
    return NOT_YET if row is None else row.cite()
