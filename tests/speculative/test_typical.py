"""Typical acceptance: Medusa's rule as it is written, exact for greedy and for nothing else."""

import math

import pytest
import torch

from every_draw import distance, every_outcome
from kvedu import generate
from kvedu.errors import RequestError
from kvedu.model.sampling import Sampling
from kvedu.speculative import typical
from kvedu.speculative.draft_tree import DraftTree
from kvedu.speculative.draws import Draws
from kvedu.speculative.speculate import speculate
from kvedu.speculative.tree import TokenTree
from kvedu.speculative.typical import Typical
from kvedu.speculative.verify import Target
from tiny import random_ids, tiny_model

P = torch.tensor([0.6, 0.3, 0.1])


def judged(tree, rows, rule=Typical(), draws=None):
    target = Target(torch.log(torch.stack(rows)), tree, [0], Sampling(temperature=1.0))
    return rule(tree, target, draws or Draws(Sampling(seed=0)))


@pytest.mark.parametrize("epsilon, delta, kept", [(0.09, 0.3, [0, 1, 2]), (0.2, 1.0, [0, 1]), (0.5, 1.0, [0]), (1.0, 1.0, [0]), (1.0, 0.3, [0, 1])])
def test_the_threshold(epsilon, delta, kept):
    """min(epsilon, delta exp(-H)); here exp(-H) is 0.408, so that 1.0 and 1.0 keep only the 0.6."""
    entropy = -sum(p * math.log(p) for p in P.tolist())
    assert math.exp(-entropy) == pytest.approx(0.4075, abs=1e-4)
    found = [t for t in range(3) if judged(TokenTree.chain([t]), [P, P], Typical(epsilon, delta)).path]
    assert found == kept == [t for t in range(3) if P[t] > min(epsilon, delta * math.exp(-entropy))]


def test_the_deepest_path_counts():
    """The second branch is deeper; of equally deep ones the first counts, though the other is likelier."""
    tree = TokenTree((0, 1, 0, 1), (-1, -1, 1, 1))
    assert judged(tree, [P] * 5).path == (1, 2)
    assert judged(TokenTree((1, 0), (-1, -1)), [P] * 3).path == (0,)
    assert judged(TokenTree(), [P]).path == ()
    sure = torch.tensor([0.0, 1.0, 0.0])
    assert judged(tree, [P, sure, sure, P, P]).path == (1, 3)


def test_it_is_not_exact_and_says_so():
    """The law that holds every exact rule fails here: a guess of probability 0.3 is always kept."""
    tree = TokenTree.chain([1])

    def run(draws):
        verdict = judged(tree, [P, P], draws=draws)
        return 1 if verdict.path else verdict.token

    assert distance(every_outcome(run), dict(enumerate(P.tolist()))) == pytest.approx(0.7, abs=1e-6)
    assert Typical.exact is False and "NOT exact" in typical.__doc__


def test_greedy_is_exact():
    model = tiny_model()
    done = speculate(model, random_ids(5), DraftTree(tiny_model(seed=1), (3, 2)), max_new_tokens=20, rule=Typical())
    assert done.completion.token_ids == generate(model, random_ids(5), max_new_tokens=20).token_ids


def test_bad_thresholds_are_refused():
    with pytest.raises(RequestError, match="between 0"):
        Typical(epsilon=0)
