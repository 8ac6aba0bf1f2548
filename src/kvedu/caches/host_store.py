"""Memory outside the device for keys and values: the host's own, or a file on disk that is mapped into it.

A file never has a name: it is gone when the last tensor on it is, however the process ends. Its whole size is reserved
before anything is written, since a disk that fills up under a mapping kills the process instead of raising an error.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from kvedu.errors import CacheError, CacheFull
from kvedu.units import decimal

_FULL = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)


def in_memory(elements: int, dtype: torch.dtype, pinned: bool) -> Tensor:
    """``[elements]`` zeros in host memory; ``pinned`` (page-locked), so that a GPU can copy them while it computes."""
    return torch.zeros(elements, dtype=dtype, device="cpu", pin_memory=pinned)


def on_disk(elements: int, dtype: torch.dtype, folder: Path | str) -> Tensor:
    """``[elements]`` zeros in a nameless file in ``folder``, mapped into memory: read and written like any tensor.

    The system keeps recently used parts in free memory and writes the others out by itself. Raises ``CacheError``
    where there is no such folder or it cannot be written, ``CacheFull`` where the disk has no room for the file.
    """
    folder, size = Path(folder), elements * dtype.itemsize
    if not folder.is_dir():
        raise CacheError(f"{folder} is no folder: make it first, or give one that exists, on the disk that should hold the cache")
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            reserve(file.fileno(), size, folder)
            mapped = mmap.mmap(file.fileno(), size)
    except PermissionError as error:
        raise CacheError(f"{folder} cannot be written: {error.strerror}; give another folder for the cache") from error
    except OSError as error:
        if error.errno in _FULL:
            free = decimal(shutil.disk_usage(folder).free)
            raise CacheFull(
                f"{folder} has {free} free and the cache takes {decimal(size)}; make it shorter, or give another disk"
            ) from error
        raise CacheError(f"no cache file can be made in {folder}: {error}") from error
    return torch.frombuffer(mapped, dtype=dtype)


def reserve(file: int, size: int, folder: Path) -> None:
    """Give an open file its whole size on disk. Raises ``OSError`` where it does not fit."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
        return
    if shutil.disk_usage(folder).free < size:  # macOS has no such call: look first, then write every byte
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    zeros = bytes(1 << 20)
    for start in range(0, size, len(zeros)):
        os.pwrite(file, zeros[: size - start], start)
