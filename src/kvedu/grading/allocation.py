"""What an answer allocates: watch every operation of PyTorch, and remember the largest tensor it made."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class LargestNew(TorchDispatchMode):
    """While it is on (``with LargestNew(*given) as watch``), ``watch.largest`` grows to the largest new storage, in bytes.

    Storages of the tensors ``given`` do not count: a view of them is free. ``watch.operation`` names
    the operation that made the largest.
    """

    def __init__(self, *given: Tensor) -> None:
        super().__init__()
        self.known = {x.untyped_storage().data_ptr() for x in given}
        self.largest, self.operation = 0, "nothing"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(x, Tensor) and x.untyped_storage().data_ptr() not in self.known:
                if x.untyped_storage().nbytes() > self.largest:
                    self.largest, self.operation = x.untyped_storage().nbytes(), func.overloadpacket.__name__
        return out
