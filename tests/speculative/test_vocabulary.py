"""A draft's reduced vocabulary: which tokens are in it, and probabilities that say 0 of all others."""

import pytest
import torch

from kvedu.errors import RequestError
from kvedu.model.sampling import Sampling, distribution
from kvedu.speculative.vocabulary import DraftVocabulary

IDS = torch.tensor([1, 2, 4, 7])
VOCABULARY = DraftVocabulary(IDS, 9)


def test_the_frequent_ones_the_smaller_id_first_among_equals():
    counts = torch.tensor([5, 0, 5, 9, 0, 1, 5])
    assert DraftVocabulary.frequent(counts, 3).ids == [0, 2, 3]
    assert DraftVocabulary.frequent(counts, 3, always=(4,)).ids == [0, 3, 4]
    assert DraftVocabulary.frequent(counts, 99).ids == list(range(7))
    assert counts[4] == 0, "the counts are the caller's"


@pytest.mark.parametrize(
    "sampling",
    [Sampling(temperature=0.7), Sampling(temperature=1.2, top_k=2), Sampling(temperature=1.0, top_p=0.6), Sampling(), Sampling(temperature=0.9, repetition_penalty=1.7)],
    ids=["T", "top-k", "top-p", "greedy", "penalty"],
)
def test_what_is_drawn_from_is_the_full_distribution_of_masked_logits(sampling):
    """C076: 0 outside, and inside as if the other tokens' logits were minus infinity."""
    logits_R = torch.randn(4, generator=torch.Generator().manual_seed(3))
    masked_V = torch.full((9,), -torch.inf).index_put((IDS,), logits_R)
    q_V = VOCABULARY.distribution(logits_R, sampling, [2, 5, 7, 2])
    assert q_V.dtype == torch.float64 and float(q_V.sum()) == pytest.approx(1)
    outside = [i for i in range(9) if i not in VOCABULARY.ids]
    assert not q_V[outside].any()
    torch.testing.assert_close(q_V, distribution(masked_V, sampling, [2, 5, 7, 2]))


def test_places_rows_and_coverage():
    weight_VM = torch.arange(18.0).view(9, 2)
    assert torch.equal(VOCABULARY.rows(weight_VM), weight_VM[IDS])
    assert VOCABULARY.place_V.tolist() == [-1, 0, 1, -1, 2, -1, -1, 3, -1]
    assert VOCABULARY.covers([1, 1, 3, 7]) == 0.75


@pytest.mark.parametrize("ids", [[], [3, 3], [4, 2], [-1, 2], [2, 9]])
def test_other_ids_are_refused(ids):
    with pytest.raises(RequestError, match="0 to 8"):
        DraftVocabulary(torch.tensor(ids, dtype=torch.long), 9)
