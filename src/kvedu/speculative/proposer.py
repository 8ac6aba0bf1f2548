"""What every way of drafting is asked, and what it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Hashable, Sequence

from torch import Tensor

from kvedu.model.sampling import Sampling
from kvedu.model.transformer import Transformer
from kvedu.speculative.draws import Draws
from kvedu.speculative.tree import TokenTree


@dataclass(frozen=True)
class Ask:
    """One text that wants guesses.

    ``key`` names the text from round to round; ``ids`` are its tokens, all of them verified, which only ever grow
    until ``release``. ``limit`` is the depth that can still be used. ``sampling`` is the target's own: a draft that
    draws must draw under the same temperature, top-k, top-p (else it is exact still, but rejected more often).
    """

    key: Hashable
    ids: Sequence[int] = field(repr=False)
    limit: int
    sampling: Sampling
    draws: Draws = field(repr=False)


class Proposer(ABC):
    """A way of drafting. It may guess anything, nothing included; the verifier keeps the output right.

    One duty: how many guesses a *drawn* family has must not depend on which tokens were drawn (leaving out a draw
    because it looks unlikely changes what the rest was drawn from). Chosen ones may be left out at will.
    """

    deepest: int | None = None
    """Depth that its trees never exceed; None where it does not say. Who chooses depths looks no further."""
    whole: bool = False
    """Whether a tree that is cut short of ``deepest`` is of no use."""

    def check(self, target: Transformer) -> None:
        """Refuse a target that this proposer cannot draft for. Raises ``RequestError`` with the numbers that disagree."""

    def taps(self, target: Transformer) -> tuple[int, ...]:
        """Blocks of the target, counted from 1, whose outputs this proposer reads (``Transformer.tapped``); none by default."""
        return ()

    def feed(self, key: Hashable, start: int, features_TE: Tensor) -> None:
        """The target's outputs at ``taps``, side by side, for a text's verified tokens from number ``start`` (0 is its first).

        Called for the prompt and, after each round, for the text's last token of before and the kept guesses, so that a
        text of n tokens has been fed n - 1. Rows that were fed before mean nothing new (a prompt run again); where some were
        never computed (a prefix that was cached) ``start`` leaps.
        """

    @abstractmethod
    def propose(self, asks: Sequence[Ask]) -> list[TokenTree]:
        """One tree for each ask, in order, none deeper than its ``limit`` (at least 1); empty where there is no guess."""

    def observe(self, key: Hashable, tree: TokenTree, logits_TV: Tensor) -> None:
        """What the target said of the tree that was verified for a text: a row after the text, and one after each node.

        The tree may have been cut since it was proposed. Called once a round, whatever was kept; nothing by default.
        """

    def release(self, key: Hashable) -> None:
        """A text has ended: give back what was kept for it. Nothing happens for an unknown key."""
