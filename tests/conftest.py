"""Where there is no GPU, Triton's kernels are tested in its interpreter.

Triton chooses when it is first imported, and PyTorch's own parts import it too, so the choice is made here, before
any test file is read. Processes that compile kernels ahead of time take the setting out again. What graders and boards
note goes to a folder of this process: not to the user's own record, and not to that of another part of the run.
"""

import os
import tempfile
from pathlib import Path

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

_RECORDS = tempfile.TemporaryDirectory()
os.environ["KVEDU_PROGRESS"] = str(Path(_RECORDS.name) / "progress.json")


def pytest_collection_modifyitems(items: list) -> None:
    """``KVEDU_SHARD=1/4``: every fourth test, from the second on, for machines with many cores and no pytest-xdist."""
    shard, shards = map(int, os.environ.get("KVEDU_SHARD", "0/1").split("/"))
    items[:] = items[shard::shards]
