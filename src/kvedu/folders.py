"""Where kvedu keeps what it can make again: the model's file, its fast form, compiled kernels.

Standard library only.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """``KVEDU_CACHE``, else kvedu's folder in the platform's place for caches. It need not exist yet."""
    if os.environ.get("KVEDU_CACHE"):
        return Path(os.environ["KVEDU_CACHE"]).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "kvedu"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "kvedu"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvedu"
