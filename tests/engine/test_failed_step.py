"""A step that fails on the way, say for lack of memory, leaves nothing behind: the next ones give everybody the same tokens."""

import pytest
import torch

import kvedu.engine.choose as choose
import kvedu.engine.scores as scores
import kvedu.engine.steps as steps
from engines import assert_accounts, assert_all_came_back, engine_of
from kvedu.caches.kv_format import KVFormat
from kvedu.engine.depths import Full
from kvedu.engine.graphs import Again, DecodeGraphs
from kvedu.engine.trace import Admitted
from kvedu.kernels import native
from kvedu.model.sampling import Sampling
from kvedu.model.transformer import Transformer
from kvedu.speculative.ngram import NGram
from tiny import random_ids, tiny_config, tiny_model

PLACES = {
    "blocks": (Transformer, "hidden"), "head": (Transformer, "logits"), "score": (scores, "logprob_numbers"), "picks": (steps, "Picks"),
    "draw": (choose, "draw_rows"), "coming": (choose, "Coming"), "report": (choose, "report_row"),
}  # fmt: skip
HOW = {
    "plain": {}, "overlap": dict(overlap=True), "recorded": dict(graphs=True), "both": dict(overlap=True, graphs=True),
    "guesses": dict(speculate=NGram(3), depths=Full()),
}  # fmt: skip
GREEDY = [Sampling(), Sampling(repetition_penalty=1.2), Sampling()]
"""For those whom somebody guesses for: a guess that is made anew takes new numbers, so that only the distribution of a draw stays."""

UNUSED = "draw", "report"
"""What guesses are verified against is drawn elsewhere."""


class Failing:
    """What stands at a place fails where ``at`` says; before it, where ``late``: after it has been called."""

    def __init__(self, monkeypatch, place, at=(), late=False):
        (owner, name), self.calls, at = PLACES[place], 0, set(at)
        old = getattr(owner, name)

        def called(*args, **kwargs):
            self.calls += 1
            done = old(*args, **kwargs) if late else None
            if self.calls in at:
                raise torch.OutOfMemoryError("a test says so")
            return done if late else old(*args, **kwargs)

        monkeypatch.setattr(owner, name, called)


def served(how, sampling=None, **settings):
    """What everybody got; steps that failed. Forks, draws, penalties, reports and scores, in more steps than one for a prompt."""
    graphs = (lambda model, cache: DecodeGraphs(model, cache, ladder=(1, 2, 4, 8), record=Again)) if how.get("graphs") else False
    engine = engine_of(tiny_model(tiny_config(D=16)), pages=120, token_budget=12, **how | {"graphs": graphs}, **settings)
    dear = Sampling(temperature=0.8, top_p=0.9, repetition_penalty=1.2, seed=2)
    kinds, failed = [Sampling(), Sampling(temperature=0.9, seed=1, logprobs=1), dear], 0
    for i, one in enumerate(sampling or kinds):
        wants = dict(n=1 + i % 2, prompt_logprobs=1 if i == 2 else None)
        engine.add(random_ids(5 + 2 * i, seed=i), max_new_tokens=7, ignore_eos=True, sampling=one, **wants)
    for _ in range(100):
        if engine.idle:
            break
        try:
            engine.step()
        except torch.OutOfMemoryError:
            failed += 1
        assert_accounts(engine)
    assert_all_came_back(engine)
    admitted = [(event.request, event.copy) for event in engine.trace.events if isinstance(event, Admitted)]
    assert len(admitted) == len(set(admitted)) == len(sampling or kinds)
    return [[one.token_ids for one in engine.results(i)] for i in range(3)], engine.results(2)[0].prompt_logprobs, failed


def skip_without_kernel(how):
    if how.get("graphs") and isinstance(native.library(), native.Unavailable):
        pytest.skip("no paged kernel here to record, and no GPU")


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("place, how", [(place, how) for place in PLACES for how in HOW if how != "guesses" or place not in UNUSED])
def test_the_next_steps_give_what_they_would_have(monkeypatch, place, how, late):
    """Streams of random numbers included; whether it fails early, in mid-batch, or twice in a row."""
    skip_without_kernel(HOW[how])
    kinds = GREEDY if how == "guesses" else None
    monkeypatch.setattr(scores, "AT_ONCE", 2)
    wanted, scored, _ = served(HOW[how], kinds)
    for at in ([1], [2], [3, 4], [5, 9]):
        with monkeypatch.context() as patch:
            Failing(patch, place, at, late)
            tokens, also_scored, failed = served(HOW[how], kinds)
        assert tokens == wanted and failed >= (at[0] < 3), (place, at)
        assert [x and x.token_id for x in also_scored] == [x and x.token_id for x in scored]
        assert [x.logprob for x in also_scored[1:]] == pytest.approx([x.logprob for x in scored[1:]], abs=1e-4)


@pytest.mark.parametrize("how", ["plain", "both"])
@pytest.mark.parametrize("place", ["head", "draw"])
def test_over_pages_of_codes_too(monkeypatch, place, how):
    """Their tails cannot be cut back as far as a step goes; so the step must not be taken in before its tokens are chosen."""
    skip_without_kernel(HOW[how])
    format = KVFormat.kivi(bits=2, group=4, residual=4)
    wanted, _, _ = served(HOW[how], kv_format=format)
    for at in ([1], [2, 5], [4]):
        with monkeypatch.context() as patch:
            Failing(patch, place, at)
            tokens, _, failed = served(HOW[how], kv_format=format)
        assert tokens == wanted and 1 <= failed + (how == "both"), (at, "while it is recorded, a step does without")


def test_scores_of_a_long_prompt_are_held_in_pieces(monkeypatch):
    """Logits of so many rows at a time, however long the chunk; the scores are those of one piece."""
    rows, logits = [], Transformer.logits
    monkeypatch.setattr(Transformer, "logits", lambda self, x: (rows.append(len(x)), logits(self, x))[1])  # the last one is of the step

    def scores_of(pieces):
        monkeypatch.setattr(scores, "AT_ONCE", pieces)
        engine = engine_of(tiny_model(), token_budget=64)
        engine.add(random_ids(40), max_new_tokens=0, prompt_logprobs=2)
        engine.step()
        return engine.results(0)[0].prompt_logprobs

    whole, few = scores_of(64), scores_of(16)
    assert rows == [39, 1, 16, 16, 7, 1] and len(few) == 40
    assert [x.logprob for x in few[1:]] == pytest.approx([x.logprob for x in whole[1:]], abs=1e-5)
