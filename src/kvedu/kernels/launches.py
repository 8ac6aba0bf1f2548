"""What a piece of work would launch on a GPU that is not there: PyTorch's operations and Triton's kernels, in order.

The work's tensors lie on PyTorch's meta device, which knows shapes and holds no numbers. Triton's kernels are planned,
with all their checks, and not run. So the count is of the very calls that a GPU would get; an operation is counted once,
though PyTorch may launch more than one kernel for it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Iterator
from unittest.mock import patch

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import kvedu.kernels.launch as launch
from kvedu.kernels.launch import Chip, KernelError, Launch

NOTHING_RUNS = ("empty", "new_empty", "empty_like", "empty_strided", "detach", "detach_", "alias", "_unsafe_view", "lift_fresh")
"""Operations that ask for memory or for another name of it, and launch nothing."""
WRITES_IN_PLACES = ("index_put_", "index_copy_", "scatter_")
GATHERS = ("embedding", "index", "index_select", "gather")


@dataclass(frozen=True)
class Launched:
    """One of them: its name, bytes of the tensors that it reads and writes, and whether it is a Triton kernel.

    Of a tensor that is only looked up or written to in places, those places count. A Triton kernel's bytes are not known
    here (None): it may read a part of what it is given, as attention reads pages; its ``cost`` says how much.
    """

    name: str
    bytes: int | None
    triton: bool = False


class _Watch(TorchDispatchMode):
    def __init__(self, found: list[Launched]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.name().removeprefix("aten::").split(".")[0]
        there = [x for x in tree_leaves(out) if isinstance(x, Tensor) and x.device.type == "meta"]
        if there and not func.is_view and name not in NOTHING_RUNS:
            given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
            if name in WRITES_IN_PLACES:  # what is put there is read, and written as often
                moved = sum(x.nbytes for x in given[1:]) + given[-1].nbytes
            else:
                moved = sum(x.nbytes for x in (given[1:] if name in GATHERS else given)) + sum(x.nbytes for x in there)
                moved += sum(x.nbytes for x in there) if name in GATHERS else 0
            self.found.append(Launched(name, moved))
        return out


@contextlib.contextmanager
def launches(chip: Chip | None = None, *, kernels: bool = True) -> Iterator[list[Launched]]:
    """What the work inside launches on the meta device, a list that fills up; for a ``chip`` (None: one of capability 9.0).

    ``kernels``: whether the library's Triton kernels are there, as on a GPU; without them PyTorch's operations do the
    work where they can. Raises ``KernelError`` where Triton cannot be imported, so that nothing can be planned.

    >>> import torch
    >>> x = torch.empty(4, 8, device="meta")
    >>> with launches(kernels=False) as found:
    ...     _ = (x @ x.T).softmax(-1)
    >>> [one.name for one in found], found[0].bytes
    (['mm', '_softmax'], 320)
    """
    if kernels and launch.missing():
        raise KernelError(f"launches cannot be planned: {launch.missing()}. Give kernels=False for PyTorch's operations alone")
    found: list[Launched] = []

    def planned(self: Launch) -> None:
        if 0 not in self.grid:
            kernel = getattr(self.kernel, "fn", self.kernel)
            found.append(Launched(getattr(kernel, "__name__", "kernel"), None, triton=True))

    with (
        patch.object(launch, "runs_on", lambda device: kernels),
        patch.object(launch, "interpreted", lambda: False),
        patch.object(launch, "_chip", lambda device: chip or Chip.known(90)),
        patch.object(Launch, "run", planned),
        _Watch(found),
    ):
        yield found
