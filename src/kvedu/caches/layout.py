"""The ragged layout of one step: which new tokens belong to which sequence, and who sees whom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Sequence

import torch
from torch import Tensor

from kvedu.errors import CacheError
from kvedu.kernels.attention import visible_causal


@dataclass(frozen=True)
class Row:
    """One sequence's share of a step: ``count`` new tokens after ``start`` committed ones.

    ``first`` is the row of its first new token in the step's ragged tensors; ``committed`` and
    ``new`` are positions. ``parents`` gives, for a token tree, the index (among the new
    tokens) that each new token hangs from, -1 for the last committed one.
    """

    seq: int
    first: int
    committed: Sequence[int] = field(repr=False)
    new: Sequence[int] = field(repr=False)
    parents: tuple[int, ...] | None = None

    @property
    def start(self) -> int:
        """Committed tokens: where the new ones begin."""
        return len(self.committed)

    @property
    def count(self) -> int:
        """New tokens."""
        return len(self.new)

    @property
    def positions(self) -> list[int]:
        """Positions of all its tokens, committed and new."""
        return [*self.committed, *self.new]

    @property
    def end_position(self) -> int:
        """One past the last position: the sequence length that RoPE scalings look at."""
        return max(self.new) + 1

    @property
    def total(self) -> int:
        """Tokens of the sequence once the step is committed (S)."""
        return self.start + self.count

    @property
    def gapless(self) -> bool:
        """Whether its committed tokens stand at positions 0, 1, 2 … without a gap, and its new ones follow them."""
        return self.new[0] == self.start  # positions ascend, so the last tells of all; a tree's first node has depth 1

    @property
    def plain(self) -> bool:
        """Whether its tokens stand at positions 0, 1, 2 … without a gap, and its new ones are no tree."""
        return self.parents is None and self.gapless

    @property
    def rows(self) -> slice:
        """Its rows in the step's ragged tensors."""
        return slice(self.first, self.first + self.count)

    def visible(self, window: int | None = None) -> Tensor:
        """Boolean ``[count, total]`` on the CPU: which of the sequence's tokens each new token sees.

        Committed tokens and itself always; of the other new ones its ancestors: the
        earlier ones, or in a tree those on its path. A window hides what is W or more positions back.
        """
        positions_S = torch.tensor(self.positions, device="cpu")
        seen_TS = visible_causal(positions_S[self.start :], positions_S, window)
        if self.parents is not None:
            family_TT = torch.eye(self.count, dtype=torch.bool, device="cpu")
            for i, parent in enumerate(self.parents):
                if parent >= 0:
                    family_TT[i] |= family_TT[parent]
            seen_TS[:, self.start :] &= family_TT
        return seen_TS


def plan(
    counts: Mapping[int, int],
    committed: Mapping[int, Sequence[int]],
    parents: Mapping[int, Sequence[int]] | None = None,
) -> tuple[Row, ...]:
    """Lay out a step, checking everything a caller can get wrong; nothing is changed here.

    ``counts`` maps sequence ids to numbers of new tokens, ``committed`` every known sequence id
    to the positions of its tokens, ``parents`` the tree sequences to parent indices.
    Raises ``CacheError`` for an empty step, an unknown sequence, a count below 1, or parents
    that are not earlier new tokens.
    """
    if not counts:
        raise CacheError("a step needs at least one sequence; got none")
    strangers = set(parents or ()) - set(counts)
    if strangers:
        raise CacheError(f"parents name sequences that are not in the step: {sorted(strangers)}")
    rows, first = [], 0
    for seq, count in counts.items():
        if seq not in committed:
            raise CacheError(f"sequence {seq} is not in this cache (freed, or from another one?); add() gives ids")
        if count < 1:
            raise CacheError(f"sequence {seq} brings {count} tokens; a step needs at least 1 of each sequence in it")
        old = committed[seq]
        after = old[-1] + 1 if old else 0
        tree = None
        if parents is None or seq not in parents:
            new: Sequence[int] = range(after, after + count)
        else:
            tree = tuple(parents[seq])
            new = _depths(seq, count, tree, after)
        rows.append(Row(seq, first, old, new, tree))
        first += count
    return tuple(rows)


def _depths(seq: int, count: int, tree: tuple[int, ...], after: int) -> list[int]:
    """Positions of a tree's tokens: the depth below the last committed token."""
    if len(tree) != count:
        raise CacheError(f"sequence {seq} brings {count} tokens but {len(tree)} parents")
    positions: list[int] = []
    for i, parent in enumerate(tree):
        if not -1 <= parent < i:
            raise CacheError(
                f"parent of new token {i} of sequence {seq} is {parent}; it must be an earlier new token "
                "(0 .. i-1) or -1 for the last committed one"
            )
        positions.append(after if parent < 0 else positions[parent] + 1)
    return positions
