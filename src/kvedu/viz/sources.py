"""Where a figure's scripts are, and how they are put together for a page, for a notebook and for node.

A figure NAME is ``NAME.js`` in this folder, a classic script that calls ``kvfig.define("NAME", …)``. Beside it,
``NAME.py`` makes its data. ``runtime/`` draws and mounts; ``vendor/d3.js`` is put there by ``make``.
"""

from __future__ import annotations

from pathlib import Path

from kvedu.errors import KveduError

HERE = Path(__file__).resolve().parent
RUNTIME = HERE / "runtime"
SHARED = ("core", "cost", "replay")
"""Files of ``runtime/`` that every figure may use, in the order in which they load."""
D3 = HERE / "vendor" / "d3.js"


def figure_names() -> list[str]:
    """All figures there are."""
    return sorted(path.stem for path in HERE.glob("*.js"))


def figure_script(name: str) -> Path:
    """The script of a figure. Raises ``KveduError`` with the names there are."""
    path = HERE / f"{name}.js"
    if not path.is_file():
        raise KveduError(f"no figure {name!r}; there are {', '.join(figure_names())}")
    return path


def drawing_library() -> Path:
    """The drawing library D3. Raises ``KveduError`` where nobody has installed it yet."""
    if not D3.is_file():
        raise KveduError(
            "figures draw with D3, which is installed from its lock file: run `make book` or "
            "`python tools/book_vendor.py` once (a wheel that `make book` built has it inside)"
        )
    return D3


def joined(name: str | None, *endings: str) -> str:
    """One script: D3, what figures share, the figure, then the named files of ``runtime/``."""
    paths = [drawing_library(), *(RUNTIME / f"{part}.js" for part in SHARED)]
    paths += [figure_script(name)] if name is not None else []
    paths += [RUNTIME / f"{ending}.js" for ending in endings]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)
