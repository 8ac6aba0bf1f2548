"""What the book is built from, as hashes: one for execution, one for the pages."""

import hashlib
import platform
from collections.abc import Iterable
from pathlib import Path

SKIP = {"__pycache__", "node_modules", "vendor", ".ipynb_checkpoints", "_build"}
PAGE_ONLY = {".md", ".css", ".bib", ".js"}
"""Endings of files that a page shows and no cell reads."""


def execution_key(root: Path, package: Path) -> str:
    """Hash of all that a cell's output may depend on besides the notebook's own code.

    That is the library, the stored rows, the data beside the chapters, the packages' versions and Python's.
    """
    beside = (path for path in _files(root / "book") if path.suffix not in PAGE_ONLY and path.parent.name not in ("_ext", "questions", "stored"))
    library = (path for path in _files(package) if path.suffix not in (".js", ".css"))
    parts = [library, _files(root / "bench" / "results"), beside, [root / "constraints.txt"]]
    return _hash((path for part in parts for path in part), root, platform.python_version(), platform.machine())


def page_key(root: Path, package: Path) -> str:
    """Hash of all that a page may depend on: the execution's inputs, the text and what it includes."""
    folders = ("book", "labs", "bench", "tests", "tools")
    files = [path for name in folders for path in _files(root / name)]
    files += [root / name for name in ("_config.yml", "_toc.yml", "README.md", "pyproject.toml")]
    files += [root / "book" / "vendor" / "package-lock.json", *_files(package)]
    return _hash(files, root, execution_key(root, package))


def _files(folder: Path) -> list[Path]:
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not SKIP.intersection(path.relative_to(folder).parts[:-1])
    ]


def _hash(files: Iterable[Path], root: Path, *extra: str) -> str:
    digest = hashlib.sha256("\0".join(extra).encode())
    for path in files:
        if path.is_file():
            name = path.relative_to(root) if path.is_relative_to(root) else path
            digest.update(f"\0{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
