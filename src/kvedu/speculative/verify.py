"""Keep of a tree what the target itself would have said: the rule that leaves the output's distribution alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Sequence

import torch
from torch import Tensor

from kvedu.errors import RequestError
from kvedu.model.sampling import Sampling, distribution
from kvedu.speculative.draws import Draws
from kvedu.speculative.tree import TokenTree


class Target:
    """What the target thinks after each node of a tree.

    ``logits_TV`` has a row for the text's last token and one for each node; ``ids`` is the text.
    Distributions are made when asked for, in float64: a rule that walks one path pays for that path only.
    """

    def __init__(self, logits_TV: Tensor, tree: TokenTree, ids: Sequence[int], sampling: Sampling) -> None:
        self.logits_TV, self.tree, self.ids, self.sampling = logits_TV, tree, ids, sampling

    def seen(self, node: int) -> list[int]:
        """The text up to and including a node."""
        return [*self.ids, *(self.tree.tokens[i] for i in self.tree.path(node))]

    def p(self, node: int) -> Tensor:
        """Distribution ``[V]`` of the token after a node (-1: after the text), under the request's settings."""
        penalized = self.sampling.repetition_penalty != 1
        return distribution(self.logits_TV[node + 1], self.sampling, self.seen(node) if penalized else ())

    def best(self) -> list[int]:
        """The most likely token after the text and after each node, first of equals. Raises ``RequestError`` for NaN."""
        tops, best = self.logits_TV.max(dim=-1)
        if not torch.isfinite(tops).all():
            raise RequestError(f"the model's largest logits are {tops.tolist()[:8]}: its weights or its input are broken")
        return best.tolist()


@dataclass(frozen=True)
class Verdict:
    """``path``: the nodes that are kept, from the first level down. ``token``: what the target adds after them.

    That is the correction where a guess was rejected, and a bonus where none was.
    """

    path: tuple[int, ...]
    token: int


class Rule(Protocol):
    """A way of deciding. ``exact`` is one; ``typical`` is another, and says that it is not exact."""

    def __call__(self, tree: TokenTree, target: Target, draws: Draws) -> Verdict: ...


def exact(tree: TokenTree, target: Target, draws: Draws) -> Verdict:
    """Verify a tree so that the output is distributed exactly as plain decoding's, whatever was guessed.

    Greedy requests follow the target's own choice. For others, down from the text's last token: see ``among``.
    """
    if target.sampling.greedy and target.sampling.repetition_penalty == 1:
        return greedy(tree, target.best())
    path: list[int] = []
    node = -1
    while True:
        children = tree.children.get(node, [])
        taken, token = among([tree.tokens[i] for i in children], tree.q.get(node), target.p(node), draws)
        if taken is None:
            return Verdict(tuple(path), token)
        node = children[taken]
        path.append(node)


def greedy(tree: TokenTree, best: Sequence[int]) -> Verdict:
    """Follow the target's best tokens as far as the tree has them. ``best[i + 1]`` comes after node i, ``best[0]`` after the text."""
    path: list[int] = []
    node = -1
    while (child := next((i for i in tree.children.get(node, []) if tree.tokens[i] == best[node + 1]), None)) is not None:
        path.append(child)
        node = child
    return Verdict(tuple(path), best[node + 1])


def among(tokens: Sequence[int], q_V: Tensor | None, p_V: Tensor, draws: Draws) -> tuple[int | None, int]:
    """A token distributed as ``p``, one of the guessed ones where possible: (which guess, or None; the token).

    A guess x is taken with probability min(1, p(x) / q(x)). If it is not, what p has beyond q is left,
    ``max(p - q, 0)`` scaled to 1, as the target of the next guess, which was drawn from q without x; after
    the last guess the token is drawn from what is left. ``q_V`` None: guesses were chosen, q is 1 at each in its turn.

    One guess: Leviathan et al. 2023 (2211.17192), algorithm 1; Chen et al. 2023 (2302.01318). Several:
    multi-round speculative sampling, SpecInfer (Miao et al. 2024, 2305.09781), for guesses that are drawn without
    replacement as in recursive rejection sampling (Jeon et al. 2024, 2402.14160). Cost: O(V) for each guess.
    """
    for i, token in enumerate(tokens):
        drawn = 1.0 if q_V is None else float(q_V[token])
        if draws.happens(float(p_V[token]) / drawn):
            return i, token
        left_V = p_V.clone()
        if q_V is None:
            left_V[token] = 0
        else:
            left_V = (p_V - q_V).clamp(min=0)
            q_V = q_V.clone()
            q_V[token] = 0
            if i + 1 < len(tokens):
                q_V /= q_V.sum()
        mass = float(left_V.sum())
        if mass <= 0:  # p = q but for rounding: a rejection whose probability is rounding error
            return i, token
        p_V = left_V / mass
    return None, draws.pick(p_V)
