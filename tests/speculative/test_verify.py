"""Rejection sampling: exact by enumeration for any guesses, and by goodness of fit with real draws; planted bugs are seen."""

import itertools

import pytest
import torch

from every_draw import distance, every_outcome, random_distribution
from kvedu.errors import RequestError
from kvedu.model.sampling import Sampling
from kvedu.speculative.draws import Draws
from kvedu.speculative.tree import EMPTY, TokenTree
from kvedu.speculative.verify import Target, among, exact, greedy

P = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
Q = torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64)


def draw_siblings(q_V, n, draws):
    """n tokens drawn from q without replacement, as a proposer draws them."""
    tokens, left_V = [], q_V.clone()
    for _ in range(n):
        tokens.append(draws.pick(left_V))
        left_V[tokens[-1]] = 0
    return tokens


# Three wrong verifiers, each a mistake that people make (C076).


def correction_from_p(tokens, q_V, p_V, draws):
    """Forgets the residual distribution."""
    if draws.happens(float(p_V[tokens[0]] / q_V[tokens[0]])):
        return 0, tokens[0]
    return None, draws.pick(p_V)


def accept_by_p_alone(tokens, q_V, p_V, draws):
    """Leaves q out of the acceptance."""
    if draws.happens(float(p_V[tokens[0]])):
        return 0, tokens[0]
    return None, draws.pick((p_V - q_V).clamp(min=0))


def correction_by_argmax(tokens, q_V, p_V, draws):
    """Always takes the best of what is left."""
    if draws.happens(float(p_V[tokens[0]] / q_V[tokens[0]])):
        return 0, tokens[0]
    return None, int((p_V - q_V).argmax())


WRONG = [correction_from_p, accept_by_p_alone, correction_by_argmax]


def chi_square(rule, n, seed=0):
    """Chi-square statistic of n draws of one round against P (2 degrees of freedom), and the share accepted."""
    draws = Draws(Sampling(temperature=1.0, seed=seed))
    counts, accepted = [0, 0, 0], 0
    for _ in range(n):
        taken, token = rule([draws.pick(Q)], Q, P, draws)
        counts[token] += 1
        accepted += taken is not None
    return sum((c - n * p) ** 2 / (n * p) for c, p in zip(counts, P.tolist())), accepted / n, [c / n for c in counts]


def test_goodness_of_fit():
    """C076: 200,000 draws; frequencies p within 0.01, acceptance 0.40; chi-square with 2 degrees of freedom.

    13.8 is passed by chance once in a thousand seeds; this seed is fixed.
    """
    statistic, accepted, shares = chi_square(among, 200_000)
    assert statistic < 13.8
    assert accepted == pytest.approx(0.40, abs=0.01)
    assert shares == pytest.approx(P.tolist(), abs=0.01)


@pytest.mark.parametrize("rule", WRONG)
def test_goodness_of_fit_sees_a_wrong_verifier(rule):
    """C076: the same test, with a tenth of the draws, is failed by each wrong rule."""
    assert chi_square(rule, 20_000)[0] > 1_000


def test_known_numbers():
    """C076: residual (.8333, .1667, 0), acceptance 0.40; the two wrong results are those that the reports know."""
    right = every_outcome(lambda draws: among(draw_siblings(Q, 1, draws), Q, P, draws))
    assert sum(p for (taken, _), p in right.items() if taken is not None) == pytest.approx(0.40)
    rejected = [right.get((None, token), 0.0) / 0.60 for token in range(3)]
    assert rejected == pytest.approx([5 / 6, 1 / 6, 0])
    wrong = every_outcome(lambda draws: correction_from_p(draw_siblings(Q, 1, draws), Q, P, draws)[1])
    assert [wrong[token] for token in range(3)] == pytest.approx([0.46, 0.38, 0.16])
    best = int(Q.argmax())  # picked by argmax, scored with its softmax
    wrong = every_outcome(lambda draws: among([best], Q, P, draws)[1])
    assert [wrong[token] for token in range(3)] == pytest.approx([0.714, 0.143, 0.143], abs=5e-4)


@pytest.mark.parametrize("V, siblings, zeros", [(2, 1, 0), (3, 1, 1), (3, 2, 0), (4, 2, 1), (4, 3, 1), (5, 3, 0)])
@pytest.mark.parametrize("kind", ["drawn", "chosen", "same"])
def test_one_place_is_exact(V, siblings, zeros, kind):
    """C076: drawn with or without siblings, chosen, or drawn from p itself: the token's distribution is p to rounding."""
    generator = torch.Generator().manual_seed(100 * V + 10 * siblings + zeros)
    for _ in range(5):
        p_V = random_distribution(V, generator, zeros)
        q_V = p_V if kind == "same" else random_distribution(V, generator, zeros)
        n = min(siblings, int((q_V > 0).sum()))
        chosen = torch.randperm(V, generator=generator)[:n].tolist()

        def run(draws):
            if kind == "chosen":
                return among(chosen, None, p_V, draws)[1]
            return among(draw_siblings(q_V, n, draws), q_V, p_V, draws)[1]

        assert distance(every_outcome(run), dict(enumerate(p_V.tolist()))) < 1e-9
        if kind == "same":
            assert all(among(draw_siblings(q_V, 1, d), q_V, p_V, d)[0] == 0 for d in [Draws(Sampling(seed=i)) for i in range(20)])


@pytest.mark.parametrize("rule", WRONG)
def test_enumeration_sees_a_wrong_verifier(rule):
    assert distance(every_outcome(lambda draws: rule(draw_siblings(Q, 1, draws), Q, P, draws)[1]), dict(enumerate(P.tolist()))) > 0.01


def test_siblings_drawn_with_the_unshrunk_draft_are_seen():
    """The second guess was drawn from q without the first: scoring it with q as it was is wrong, and the law sees it."""

    def run(draws):
        p_V, tokens = P, draw_siblings(Q, 2, draws)
        for token in tokens:
            if draws.happens(float(p_V[token] / Q[token])):
                return token
            p_V = (p_V - Q).clamp(min=0)
            p_V = p_V / p_V.sum()
        return draws.pick(p_V)

    assert distance(every_outcome(run), dict(enumerate(P.tolist()))) > 0.01


def logits_for(rows):
    return torch.log(torch.stack(rows)).clamp(min=-50)


def test_a_whole_tree_is_exact():
    """Two levels with siblings, drawn above and chosen below: the pair of tokens is distributed as p says."""
    generator = torch.Generator().manual_seed(3)
    V = 3
    first, then = random_distribution(V, generator), [random_distribution(V, generator) for _ in range(V)]
    q_V = random_distribution(V, generator)
    sampling = Sampling(temperature=0.7, top_k=2)

    def shaped(p_V):
        return Target(logits_for([p_V]), EMPTY, [0], sampling).p(-1)

    def run(draws):
        a, b = draw_siblings(q_V, 2, draws)
        tree = TokenTree((a, b, 1, 2, 0), (-1, -1, 0, 0, 1), {-1: q_V})
        rows = [first, then[a], then[b], *[first] * 3]
        verdict = exact(tree, Target(logits_for(rows), tree, [0], sampling), draws)
        emitted = [*(tree.tokens[i] for i in verdict.path), verdict.token]
        if len(emitted) == 1:  # the round ended early: plain decoding goes on
            emitted.append(draws.pick(shaped(then[emitted[0]])))
        return tuple(emitted[:2])

    wanted = {(a, b): float(shaped(first)[a] * shaped(then[a])[b]) for a, b in itertools.product(range(V), repeat=2)}
    assert distance(every_outcome(run), wanted) < 1e-7


def test_greedy_follows_the_best_tokens():
    tree = TokenTree((5, 7, 8, 9, 6), (-1, -1, 1, 1, 2))
    assert greedy(tree, [7, 0, 9, 0, 3, 0]).path == (1, 3) and greedy(tree, [7, 0, 9, 0, 3, 0]).token == 3
    assert greedy(tree, [7, 0, 8, 6, 0, 2]).path == (1, 2, 4) and greedy(tree, [7, 0, 8, 6, 0, 2]).token == 2
    assert greedy(tree, [1, 0, 0, 0, 0, 0]).path == () and greedy(EMPTY, [4]).token == 4


def test_broken_logits_and_broken_trees_are_refused():
    target = Target(torch.tensor([[0.0, float("nan")]]), EMPTY, [0], Sampling())
    with pytest.raises(RequestError, match="weights or its input are broken"):
        exact(EMPTY, target, Draws(Sampling(seed=0)))
    for args, message in [
        (((1, 2), (-1,)), "2 tokens has 1 parents"),
        (((1, 2), (-1, 1)), "node 1 hangs from 1"),
        (((1, 1), (-1, -1)), "two children with one token"),
        (((0,), (-1,), {-1: torch.tensor([0.0, 1.0])}), "probability 0"),
    ]:
        with pytest.raises(RequestError, match=message):
            TokenTree(*args)


def test_cutting_a_tree():
    q = {node: P for node in (-1, 0, 1)}
    tree = TokenTree((0, 1, 2, 0, 1), (-1, -1, 0, 1, 3), q)
    assert tree.depths == [1, 1, 2, 2, 3] and tree.path(4) == [1, 3, 4] and not tree.is_chain
    cut = tree.cut(depth=2, nodes=9)
    assert cut.tokens == (0, 1, 2, 0) and cut.parents == (-1, -1, 0, 1) and set(cut.q) == {-1, 0, 1}
    assert tree.cut(depth=9, nodes=1).tokens == (0,)
    deep_first = TokenTree((0, 1, 2, 1, 0), (-1, 0, 1, -1, 3), {1: P, 3: Q}).cut(depth=2, nodes=9)  # node 2 goes
    assert deep_first.tokens == (0, 1, 1, 0) and deep_first.parents == (-1, 0, -1, 2) and deep_first.q == {1: P, 2: Q}
    assert len(tree.cut(depth=9, nodes=-1)) == 0 and tree.cut(depth=3, nodes=5) is tree
