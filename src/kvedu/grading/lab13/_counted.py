"""What an answer makes on its way: the largest tensor."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kvedu.grading.exercise import Unfit


class Largest(TorchDispatchMode):
    """Remembers the most elements that any operation gave out."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else (out,):
            if isinstance(x, Tensor):
                self.elements = max(self.elements, x.numel())
        return out


def watched(answer: Any, *args: Tensor) -> dict[str, Any]:
    """The answer's tensor, and the largest one on the way to it."""
    with Largest() as seen:
        out = answer(*args)
    if not isinstance(out, Tensor):
        raise Unfit("a tensor was wanted")
    return {"out": out, "largest": seen.elements}


def small(limit: int, written: str, seen: dict[str, Any]) -> str | None:
    """A sentence where something of ``limit`` elements or more was made."""
    if seen["largest"] < limit:
        return None
    return f"the result is right, but a tensor of {seen['largest']:,} elements was made on the way: {written} written out. Absorb the projection"
