"""Typical acceptance: keep what is plausible. NOT exact: the text is no longer distributed as the target's."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from kvedu.errors import RequestError
from kvedu.speculative.draws import Draws
from kvedu.speculative.tree import TokenTree
from kvedu.speculative.verify import Target, Verdict


@dataclass(frozen=True)
class Typical:
    """Medusa's rule: a guess x is kept if p(x) > min(``epsilon``, ``delta`` · exp(-H(p))), H the entropy of p in nats.

    Where the target is unsure (H large) little probability is enough. Of all paths whose every node is kept the
    deepest counts, the first of equals; the token after it is drawn from the target. What was drawn from which draft
    does not matter, and that is the fault: likely tokens come too often, unlikely ones are never kept.
    Greedy requests remain exact: only the best token has any probability.

    Cai et al. 2024 (2401.10774), typical acceptance; epsilon 0.09 and its square root for delta, as in the authors' code.
    Raises ``RequestError`` for thresholds outside (0, 1].
    """

    epsilon: float = 0.09
    delta: float = 0.3

    exact = False
    """Says that sampled output differs from the target's own."""

    def __post_init__(self) -> None:
        if not (0 < self.epsilon <= 1 and 0 < self.delta <= 1):
            raise RequestError(f"epsilon and delta lie between 0 (excluded) and 1; got {self.epsilon} and {self.delta}")

    def __call__(self, tree: TokenTree, target: Target, draws: Draws) -> Verdict:
        deepest, depth, stack = -1, 0, [-1]
        while stack:
            node = stack.pop()
            children = tree.children.get(node, [])
            if not children:
                continue
            p_V = target.p(node)
            entropy = float(torch.special.entr(p_V).sum())
            threshold = min(self.epsilon, self.delta * math.exp(-entropy))
            kept = [i for i in children if float(p_V[tree.tokens[i]]) > threshold]
            for i in kept:
                if tree.depths[i] > depth:
                    deepest, depth = i, tree.depths[i]
            stack += kept[::-1]
        return Verdict(tuple(tree.path(deepest)), draws.pick(target.p(deepest)))
