"""Goodness of fit with seeded draws: every exact way of verifying, under temperature and top-p; wrong ones fail the same test."""

import math
from random import Random

import pytest
import torch

from kvedu.model.sampling import Sampling, distribution
from kvedu.speculative.draws import Draws
from kvedu.speculative.tree import TokenTree
from kvedu.speculative.typical import Typical
from kvedu.speculative.verify import Verdict, among, exact

DRAWS = 200_000
V = 4
SEED = 3
SETTINGS = Sampling(temperature=0.8, top_p=0.9)
GENERATOR = torch.Generator().manual_seed(SEED)
LOGITS, DRAFT = (torch.randn(1 + V, V, generator=GENERATOR) for _ in "pq")
P = [distribution(row, SETTINGS) for row in LOGITS]
"""What the target draws from: at the first place, then after each token."""
Q = [distribution(row, SETTINGS) for row in DRAFT]
"""The draft, under the same settings."""


class Quick(Draws):
    """The same two verbs on Python numbers: a fifth of the time. (``test_verify`` draws as often with ``Draws`` itself.)"""

    def __init__(self, seed):
        self._uniform = Random(seed).random

    def pick(self, p_V):
        weights = p_V.tolist()
        left = self._uniform() * sum(weights)
        for token, weight in enumerate(weights):
            left -= weight
            if left < 0 < weight:
                return token
        return max(range(len(weights)), key=weights.__getitem__)


class Shaped:
    """A target that knows the distribution after each path of at most one token: what ``Target`` works out anew each time."""

    sampling = SETTINGS

    def __init__(self, tree):
        self.tree = tree

    def p(self, node):
        return P[0] if node < 0 else P[1 + self.tree.tokens[node]] if self.tree.parents[node] < 0 else P[0]


def siblings(q_V, n, draws):
    tokens, left_V = [], q_V
    for _ in range(min(n, int((q_V > 0).sum()))):
        tokens.append(draws.pick(left_V))
        left_V = left_V.clone()
        left_V[tokens[-1]] = 0
    return tokens


def chain(draws):
    """Two guesses in a row, each drawn from the draft."""
    a = draws.pick(Q[0])
    return TokenTree.chain([a, draws.pick(Q[1 + a])], [Q[0], Q[1 + a]])


def bush(draws):
    """Two different first guesses and a second below each, all drawn without replacement."""
    roots = siblings(Q[0], 2, draws)
    below = [draws.pick(Q[1 + token]) for token in roots]
    n = len(roots)
    return TokenTree((*roots, *below), (*[-1] * n, *range(n)), {-1: Q[0]} | {i: Q[1 + token] for i, token in enumerate(roots)})


def lookup(draws):
    """Guesses that were chosen, not drawn: an n-gram's."""
    return TokenTree((1, 3, 0, 2), (-1, -1, 0, 1))


TREES = {"chain": chain, "tree": bush, "lookup": lookup}


def statistic(tree, rule, n, seed=0):
    """Chi-square of the first two tokens against p(a) p(b | a), and its degrees of freedom; infinite for what p never gives.

    A round that yields one token is followed by a plain draw, as plain decoding would.
    """
    draws, counts = Quick(seed), [[0] * V for _ in range(V)]
    for _ in range(n):
        guessed = tree(draws)
        verdict = rule(guessed, Shaped(guessed), draws)
        emitted = [*(guessed.tokens[i] for i in verdict.path), verdict.token]
        if len(emitted) == 1:
            emitted.append(draws.pick(P[1 + emitted[0]]))
        counts[emitted[0]][emitted[1]] += 1
    total, cells = 0.0, 0
    for a in range(V):
        for b in range(V):
            expected = n * float(P[0][a] * P[1 + a][b])
            if expected:
                total, cells = total + (counts[a][b] - expected) ** 2 / expected, cells + 1
            elif counts[a][b]:
                return math.inf, 0
    return total, cells - 1


def limit(freedom):
    """Passed by chance about once in a thousand seeds (Wilson and Hilferty 1931)."""
    return freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3


def test_the_settings_bite():
    """Top-p leaves out tokens of both, and not the same ones: else the settings are not tested."""
    assert any(int((p > 0).sum()) < V for p in P) and any(bool(((p > 0) != (q > 0)).any()) for p, q in zip(P, Q))
    assert max(float((p - q).abs().sum()) for p, q in zip(P, Q)) > 0.5
    assert [limit(f) for f in (2, 10, 20)] == pytest.approx([13.82, 29.59, 45.31], rel=0.03)  # the tables' 0.999 quantiles


@pytest.mark.parametrize("name", TREES)
def test_exact_verification_fits(name):
    """C076 and must hold 2: 200,000 seeded rounds each; temperature 0.8, top-p 0.9 for target and draft."""
    found, freedom = statistic(TREES[name], exact, DRAWS)
    assert freedom >= 8 and found < limit(freedom)


def keeps_p_where_it_rejects(tree, target, draws):
    """The correction is drawn from p, not from what p has beyond q."""
    path, node = [], -1
    while children := tree.children.get(node, []):
        child = children[0]
        token = tree.tokens[child]
        if not draws.happens(float(target.p(node)[token] / tree.q[node][token])):
            break
        path.append(child)
        node = child
    return Verdict(tuple(path), draws.pick(target.p(node)))


def forgets_that_a_sibling_is_gone(tree, target, draws):
    """Scores the second of two siblings with the draft that still has the first."""
    p_V, q_V = target.p(-1), tree.q[-1]
    for child in tree.children[-1]:
        token = tree.tokens[child]
        if draws.happens(float(p_V[token] / q_V[token])):
            return Verdict((child,), draws.pick(target.p(child)))
        p_V = (p_V - q_V).clamp(min=0)
        p_V = p_V / p_V.sum()
    return Verdict((), draws.pick(p_V))


def always_takes_the_best(tree, target, draws):
    """Verifies a sampled text as a greedy one."""
    path, node = [], -1
    while child := next((i for i in tree.children.get(node, []) if tree.tokens[i] == int(target.p(node).argmax())), None):
        path.append(child)
        node = child
    return Verdict(tuple(path), int(target.p(node).argmax()))


def scores_what_was_looked_up_as_drawn(tree, target, draws):
    """Takes a guess that was chosen as if it had been drawn from the draft."""
    known = [i for i in tree.children[-1] if Q[0][tree.tokens[i]] > 0]
    taken, token = among([tree.tokens[i] for i in known[:1]], Q[0], target.p(-1), draws)
    return Verdict((), token) if taken is None else Verdict((known[0],), draws.pick(target.p(known[0])))


@pytest.mark.parametrize(
    "name, rule",
    [("chain", keeps_p_where_it_rejects), ("tree", forgets_that_a_sibling_is_gone), ("chain", always_takes_the_best),
     ("lookup", scores_what_was_looked_up_as_drawn), ("tree", Typical())],
    ids=["no residual", "sibling still there", "argmax", "chosen as drawn", "typical acceptance"],
)  # fmt: skip
def test_wrong_verification_does_not(name, rule):
    """Must hold 2: four mistakes, and the rule that says it is not exact, fail the same test with a tenth of the draws."""
    found, freedom = statistic(TREES[name], rule, DRAWS // 10)
    assert found > 3 * limit(freedom or 1)
