"""The promise of the engine on lives drawn at random in which texts are guessed: by several proposers, by none, aborted, sent back."""

import random

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engines import REUSE, assert_accounts, assert_all_came_back, engine_of, page_bytes, run_out
from kvedu.caches.concat import ConcatCache
from kvedu.caches.prefix_hash import HashReuse
from kvedu.engine.depths import Full, Measured
from kvedu.engine.preempt import Recompute, Swap
from kvedu.engine.trace import Preempted
from kvedu.model.generate import generate
from kvedu.model.sampling import Sampling
from kvedu.speculative.draft_model import DraftModel
from kvedu.speculative.draft_tree import DraftTree
from kvedu.speculative.lookahead import Lookahead
from kvedu.speculative.ngram import NGram
from proposer_cases import near
from tiny import random_ids, tiny_config, tiny_model

DEPTHS = {"full": Full, "measured": Measured, "rows are free": lambda: Measured(lambda rows: 1.0), "rows cost all": lambda: Measured(lambda rows: rows, probe=2)}


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    reuse=st.sampled_from(list(REUSE)),
    page_size=st.sampled_from([1, 2, 4]),
    depths=st.sampled_from(list(DEPTHS)),
    host_pages=st.sampled_from([None, 0, 4, 100]),
    chunk=st.sampled_from([None, 1, 3]),
)
@example(seed=15980, reuse="none", page_size=1, depths="full", host_pages=None, chunk=1)  # computed again, a token at a time: no decode
def test_any_life_of_an_engine_that_guesses(seed, reuse, page_size, depths, host_pages, chunk):
    """Must hold 1: greedy texts are generate's; sampled ones that are not guessed too; those that are have their length."""
    model = tiny_model(tiny_config(L=1, eos_ids=(3, 4)), scale=0.15)
    proposers = [NGram(3), DraftModel(near(model), 3), DraftTree(near(model), (2, 2)), Lookahead(3, 3, 2)]
    preempt = Recompute() if host_pages is None else Swap(host_pages * page_bytes(model, page_size))
    engine = engine_of(
        model, pages=36 // page_size, page_size=page_size, reuse=REUSE[reuse], max_running=4, token_budget=14, chunk=chunk,
        preempt=preempt, speculate=proposers[1], depths=DEPTHS[depths](),
    )  # fmt: skip
    rng = random.Random(seed)
    stems, asked, aborted = [random_ids(5, seed=i) for i in range(2)], {}, set()
    for _ in range(50):
        action = rng.random()
        if action < 0.25 and len(asked) < 9:
            prompt = rng.choice(stems)[: rng.randint(1, 5)] + random_ids(rng.randint(1, 4), seed=rng.randint(0, 3))
            wants = dict(max_new_tokens=rng.randint(1, 10), n=rng.choice([1, 1, 2]), sampling=rng.choice([Sampling(), Sampling(temperature=1.0, seed=rng.randint(0, 9))]))
            choice = rng.choice([True, False, *proposers])
            asked[engine.add(prompt, speculate=choice, **wants)] = (prompt, wants, choice is not False)
        elif action < 0.3 and asked:
            number = rng.choice(list(asked))
            aborted |= {number} - {n for n in asked if engine.done(n)}
            engine.abort(number)
        else:
            engine.step()
        assert_accounts(engine)
    run_out(engine)
    assert_all_came_back(engine)
    for number, (prompt, wants, guessed) in asked.items():
        alone = generate(model, prompt, **wants)
        for got, want in zip(engine.results(number), [alone] if wants["n"] == 1 else alone):
            if guessed and not wants["sampling"].greedy:
                assert number in aborted or got.finish_reason == "stop" or len(got.token_ids) == wants["max_new_tokens"]
            elif number in aborted:
                assert got.token_ids == want.token_ids[: len(got.token_ids)]
            else:
                assert (got.token_ids, got.finish_reason) == (want.token_ids, want.finish_reason)
    assert not proposers[0]._texts and not proposers[3]._texts
    assert all(p.draft.cache.sequences == () for p in proposers[1:3])


class Watching(DraftTree):
    """A tree that is often wrong, and a record of the features that came for each place of each text."""

    def __init__(self, model):
        super().__init__(near(model, 0.02), (2, 1, 1))
        self.rows = {}

    def taps(self, target):
        return (1, 3)

    def feed(self, key, start, features_TE):
        for place, row in enumerate(features_TE, start):
            self.rows.setdefault(key, {})[place] = row.clone()


def test_features_are_the_targets_own_whatever_a_text_goes_through():
    """C086: prompts in chunks, pages that were cached, texts sent back and computed again, forks, another proposer's taps beside."""
    model = tiny_model(tiny_config(L=3), scale=0.15)
    for reuse, preempt in ((None, Recompute()), (HashReuse, Recompute()), (None, Swap(10**6))):
        watching, other = Watching(model), Watching(model)
        other.taps = lambda target: (2,)
        engine = engine_of(model, pages=26, page_size=2, chunk=3, reuse=reuse, preempt=preempt, speculate=watching, depths=Full(), token_budget=24)
        stem = random_ids(6, seed=1)
        numbers = [engine.add(stem + random_ids(i, seed=i), max_new_tokens=12, n=n, speculate=choice) for i, n, choice in ((1, 1, True), (3, 2, True), (2, 1, other))]
        run_out(engine)
        assert engine.trace.of(Preempted)
        for number, proposer, taps in ((numbers[0], watching, (1, 3)), (numbers[1], watching, (1, 3)), (numbers[2], other, (2,))):
            for copy, done in enumerate(engine.results(number)):
                ids = [*done.prompt_ids, *done.token_ids][:-1]
                cache = ConcatCache(model.config)
                with torch.inference_mode(), cache.step({cache.add(): len(ids)}) as view:
                    wanted_TE = model.tapped(torch.tensor(ids), view, taps)[1]
                fed = proposer.rows[number, copy]
                missing = set(range(len(ids))) - set(fed)
                assert missing <= (set(range(len(ids))) if reuse else set()) and len(fed) > 8, "only what was found in the cache is missing"
                for place, row in fed.items():
                    torch.testing.assert_close(row, wanted_TE[place], rtol=1e-4, atol=1e-5)
