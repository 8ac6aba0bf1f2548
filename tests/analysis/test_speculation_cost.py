"""The cost model of speculation against cases worked out by hand, and the best tree against all trees."""

import doctest
import itertools

import pytest

from kvedu.analysis import speculation
from kvedu.analysis.speculation import best_depth, best_tree, break_even, expected_tokens, round_cost, speedup, tree_tokens
from kvedu.errors import KveduError


def test_tokens_of_a_round():
    """0.8, then half of those: 1 + 0.8 + 0.4; a guess after one that is never kept adds nothing."""
    assert expected_tokens([0.8, 0.5]) == pytest.approx(2.2)
    assert expected_tokens([0.8, 0.0, 1.0]) == pytest.approx(1.8)
    for a, k in itertools.product((0.1, 0.7, 0.95), (1, 3, 8)):
        assert expected_tokens([a] * k) == pytest.approx((1 - a ** (k + 1)) / (1 - a))


def test_cost_and_speedup():
    """3 ms of drafting and a verification of 12 ms against steps of 10 ms: c = 0.5; τ = 2.4 gives 1.6."""
    c = round_cost(3e-3, 12e-3, 10e-3)
    assert c == pytest.approx(0.5) and speedup(2.4, c) == pytest.approx(1.6)
    assert round_cost(0.0, 8e-3, 10e-3) == pytest.approx(-0.2)


def test_the_best_depth_by_hand():
    """a = 0.5, each guess costs 0.2: 1.5 / 1.2 = 1.25, 1.75 / 1.4 = 1.25, 1.875 / 1.6; the smaller of equals."""
    assert best_depth([0.5] * 3, lambda k: 0.2 * k) == (1, pytest.approx(1.25))
    assert best_depth([0.9, 0.1], lambda k: 0.05 * k)[0] == 1
    assert best_depth([1.0] * 5, lambda k: 0.0 * k) == (5, 6.0)
    assert best_depth([0.2] * 5, lambda k: 0.3 * k) == (0, 1.0)


def test_tokens_of_a_tree_by_hand():
    """Two roots (0.6, 0.2), two children of the first (0.36, 0.12), one of the second (0.12): 1 + 1.4."""
    assert tree_tokens([-1, -1, 0, 0, 1], [0.6, 0.2]) == pytest.approx(2.4)
    assert tree_tokens([-1, -1, -1], [0.6, 0.2]) == pytest.approx(1.8)  # a third child is never kept
    assert tree_tokens([], [0.6]) == 1


def every_tree(nodes):
    """All trees of so many nodes, whose parents are earlier ones."""
    return itertools.product(*(range(-1, i) for i in range(nodes)))


def depth_of(parents):
    depths = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return max(depths, default=0)


@pytest.mark.parametrize("by_rank", [[0.6, 0.2], [0.4, 0.3, 0.2], [0.9], [0.3, 0.3]], ids=str)
@pytest.mark.parametrize("cost", [lambda n, d: 0.1 * d, lambda n, d: 0.04 * n, lambda n, d: 0.02 * n * n + 0.05 * d], ids=["depth", "nodes", "both"])
def test_no_tree_beats_the_best(by_rank, cost):
    best = best_tree(by_rank, cost, nodes=5, depth=3)
    assert best.tokens == pytest.approx(tree_tokens(best.parents, by_rank))
    rivals = [tree for n in range(6) for tree in every_tree(n) if depth_of(tree) <= 3]
    gains = [speedup(tree_tokens(tree, by_rank), cost(len(tree), depth_of(tree)) if tree else 0.0) for tree in rivals]
    assert best.speedup == pytest.approx(max(gains))


def test_where_a_batch_makes_it_a_loss():
    """τ = 1.5: rows are free up to 16, then a pass grows with them; three guesses each pay up to 4 texts."""
    def cost(batch):
        return round_cost(0.1, max(1.0, 4 * batch / 16), max(1.0, batch / 16))

    assert [round(speedup(1.5, cost(batch)), 3) for batch in (1, 4, 8)] == [1.364, 1.364, 0.714]
    assert break_even(1.5, cost, [1, 2, 4, 8, 16]) == 8
    assert break_even(1.5, cost, [1, 2]) is None


def test_what_is_no_share_is_refused():
    for wrong in (lambda: expected_tokens([1.2]), lambda: tree_tokens([-1], [0.7, 0.7]), lambda: best_tree([0.9, 0.2], lambda n, d: 0, nodes=2, depth=1),
                  lambda: speedup(1.0, -1.0), lambda: round_cost(0.1, 0.0, 1.0), lambda: tree_tokens([1, 0], [0.5])):  # fmt: skip
        with pytest.raises(KveduError):
            wrong()


def test_examples_in_docstrings():
    assert doctest.testmod(speculation).failed == 0
