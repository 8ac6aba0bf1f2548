"""The target's own outputs reach a proposer that asks for them: each verified token's, once, in order."""

import pytest
import torch

from kvedu.caches.concat import ConcatCache
from kvedu.caches.paged import PagedCache
from kvedu.errors import RequestError
from kvedu.model.request import make_request
from kvedu.model.sampling import Sampling
from kvedu.speculative.draft_tree import DraftTree
from kvedu.speculative.speculate import speculate
from kvedu.speculative.speculation import Speculation
from proposer_cases import near
from tiny import random_ids, tiny_config, tiny_model

TAPS = (1, 3)
PROMPTS = [random_ids(9, seed=1), [5], random_ids(6, seed=2)]


class Watching(DraftTree):
    """A tree of guesses that are often wrong, and a record of what was fed."""

    def __init__(self, model):
        super().__init__(near(model, 0.02), (2, 1, 1))
        self.rows = {}

    def taps(self, target):
        return TAPS

    def feed(self, key, start, features_TE):
        assert start == sum(map(len, self.rows.get(key, []))), "no gap, nothing twice"
        self.rows.setdefault(key, []).append(features_TE.clone())


def features_of(model, ids):
    cache = ConcatCache(model.config)
    with torch.inference_mode(), cache.step({cache.add(): len(ids)}) as view:
        return model.tapped(torch.tensor(ids), view, TAPS)[1]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.7, seed=2)], ids=["greedy", "drawn"])
def test_what_is_fed_is_the_text_run_once(sampling):
    """C086: after every verification the kept tokens come with the target's features, not with a guess of them."""
    model = tiny_model(tiny_config(L=3), scale=0.15)
    watching = Watching(model)
    cache = PagedCache(model.config, n_pages=40, page_size=4)
    done = speculate(model, PROMPTS, watching, max_new_tokens=20, sampling=sampling, cache=cache)
    rounds = [r for one in done for r in one.rounds]
    assert any(r.accepted for r in rounds) and any(r.accepted < r.depth for r in rounds)
    for number, one in enumerate(done):
        ids = [*one.completion.prompt_ids, *one.completion.token_ids][:-1]
        fed_TE = torch.cat(watching.rows[number, 0])
        assert fed_TE.shape == (len(ids), 2 * model.config.M)
        torch.testing.assert_close(fed_TE, features_of(model, ids), rtol=1e-4, atol=1e-5)


def test_every_completion_of_a_prompt_is_fed_its_prompt():
    model = tiny_model(tiny_config(L=3), scale=0.15)
    watching = Watching(model)
    request = make_request(PROMPTS[0], model.config, None, 5, n=2, sampling=Sampling(temperature=1.0, seed=1))
    for _ in Speculation(model, [request], watching).stream():
        pass
    assert {key: sum(map(len, rows)) for key, rows in watching.rows.items()} == {(0, 0): 13, (0, 1): 13}


def test_the_last_tap_is_hidden_and_others_are_refused():
    model = tiny_model(tiny_config(L=3))
    cache = ConcatCache(model.config)
    seq = cache.add()
    with torch.inference_mode():
        with cache.step({seq: 4}) as view:
            hidden_NM, features_NE = model.tapped(torch.arange(4), view, (2, 3))
        assert torch.equal(hidden_NM, features_NE[:, model.config.M :])
        cache.truncate(seq, 0)
        with cache.step({seq: 4}) as view:
            assert torch.equal(hidden_NM, model.hidden(torch.arange(4), view))
        for wrong in (0, 4):
            with pytest.raises(RequestError, match=f"1 to 3.*{wrong}"), cache.step({seq: 1}) as view:
                model.tapped(torch.tensor([1]), view, (wrong,))
