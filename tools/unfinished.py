"""Where a long run keeps what is done, so that it can be stopped, and never goes on with what other code has made."""

import hashlib
import platform
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def open_work(folder: Path, tool: str) -> Path:
    """The folder, made or kept; emptied where the tool, the library or Python changed since it was begun."""
    digest = hashlib.sha256(platform.python_version().encode())
    for path in [Path(tool), *sorted((ROOT / "src" / "kvedu").rglob("*.py"))]:
        digest.update(path.read_bytes())
    key = folder / "key"
    if folder.is_dir() and (not key.is_file() or key.read_text() != digest.hexdigest()):
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    key.write_text(digest.hexdigest())
    return folder


def close_work(folder: Path) -> None:
    """Remove the folder: its row is stored, and the next run begins anew."""
    shutil.rmtree(folder)
