"""What becomes of a running sequence when blocks run out: two policies, the two of vLLM (Kwon et al. 2023, section 4.5).

Either way its output is the same. Computing again costs the step's budget, FLOPs and, for the reader, time
that grows with the text; swapping costs host memory and twice the copy. Which is cheaper depends on the link
between the two memories and on the length, so it is the caller's choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kvedu.engine.blocks import Blocks, HostSpace
from kvedu.errors import RequestError


class Preemption(Protocol):
    """How room is made."""

    def space(self, blocks: Blocks) -> HostSpace | None:
        """Host memory to copy to, or None if nothing is copied."""


@dataclass(frozen=True)
class Recompute:
    """All blocks are given back (and remembered, where there is reuse); prompt and output so far are computed again."""

    def space(self, blocks: Blocks) -> None:
        return None


@dataclass(frozen=True)
class Swap:
    """Blocks are copied to ``host_bytes`` of host memory and copied back when there is room.

    A block that several share is copied once. Where host memory is full, the sequence is computed again
    instead. Raises ``RequestError`` for a negative budget.
    """

    host_bytes: int

    def __post_init__(self) -> None:
        if self.host_bytes < 0:
            raise RequestError(f"host memory has 0 bytes or more, not {self.host_bytes}")

    def space(self, blocks: Blocks) -> HostSpace:
        return blocks.swap_space(self.host_bytes)
