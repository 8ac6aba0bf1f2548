"""Speculation in the engine: the same tokens for every proposer, whoever else runs and whatever a request goes through."""

import pytest
import torch

from engines import REUSE, assert_accounts, assert_all_came_back, engine_of, page_bytes, run_out, solo
from every_draw import distance, every_outcome
from kvedu.caches.kv_format import KVFormat
from kvedu.caches.paged_quantized import PagedQuantizedCache
from kvedu.caches.prefix_hash import HashReuse
from kvedu.engine.depths import Full, Measured
from kvedu.engine.engine import Engine
from kvedu.engine.guess_metrics import guessing
from kvedu.engine.preempt import Recompute, Swap
from kvedu.engine.trace import Admitted, Preempted, Stepped, Verified
from kvedu.errors import RequestError
from kvedu.kernels.panel_linear import panels_pay
from kvedu.model.generate import generate
from kvedu.model.sampling import Sampling
from kvedu.rope_config import RopeConfig
from kvedu.speculative.draft_model import DraftModel
from kvedu.speculative.draft_tree import DraftTree
from kvedu.speculative.ngram import NGram
from kvedu.speculative.proposer import Proposer
from kvedu.speculative.speculate import speculate
from kvedu.speculative.tree import EMPTY, TokenTree
from proposer_cases import PROPOSERS, near
from scripted import Scripted, pieces_tokenizer
from test_speculative_laws import SETTINGS, looping_model, plain_distribution, small_target
from test_speculative_laws import PROMPT as SMALL_PROMPT
from tiny import random_ids, tiny_config, tiny_model

PROMPTS = [[1, 2, 3, 1, 2, 3, 1, 2], random_ids(3, seed=1), [7], random_ids(13, seed=2)]
every_proposer = pytest.mark.parametrize("name", PROPOSERS)


class Told(Proposer):
    """Guesses what the text will be, told by its prompt; wrong from the ``right`` + 1st guess on.

    ``siblings``: each right guess has a wrong one beside it, before it (True) or "after" it.
    """

    def __init__(self, texts, k=4, right=99, siblings=False, V=97):
        self.texts, self.k, self.right, self.siblings, self.V, self.open = texts, k, right, siblings, V, set()

    def propose(self, asks):
        return [self._guess(ask) for ask in asks]

    def _guess(self, ask):
        self.open.add(ask.key)
        text = next(text for text in self.texts if list(text[: len(ask.ids)]) == list(ask.ids))
        tokens, parents, last = [], [], -1
        for i, token in enumerate(text[len(ask.ids) :][: min(self.k, ask.limit)]):
            wrong = (token + 1) % self.V
            guesses = ([token, wrong] if self.siblings == "after" else [wrong, token] if self.siblings else [token]) if i < self.right else [wrong]
            tokens += guesses
            parents += [last] * len(guesses)
            last = len(tokens) - len(guesses) + (guesses.index(token) if token in guesses else 0)
        return TokenTree(tuple(tokens), tuple(parents))

    def release(self, key):
        self.open.discard(key)


def texts_of(model, prompts, n):
    return [[*prompt, *solo(model, prompt, n)] for prompt in prompts]


# -- the law -----------------------------------------------------------------------------------


@every_proposer
@pytest.mark.parametrize("k, page_size", [(1, 4), (3, 1), (3, 16), (7, 4)])
def test_output_equals_solo(name, k, page_size):
    """Must hold 1: alone, then in a batch of some with this proposer, some with another and another k, some with none."""
    model = looping_model()
    wanted = [solo(model, prompt, 20) for prompt in PROMPTS]
    engine = engine_of(model, pages=256 // page_size, page_size=page_size, token_budget=200, speculate=PROPOSERS[name](model, k), depths=Full())
    assert engine.generate(PROMPTS[:1], max_new_tokens=20)[0].token_ids == wanted[0]
    assert any(r.guessed for r in engine.rounds(0)[0])
    other = NGram(2) if name != "n-gram" else DraftTree(near(model), (2, 2))
    asked = {engine.add(prompt, max_new_tokens=20, speculate=choice): tokens
             for prompt, tokens in zip(PROMPTS, wanted) for choice in (True, other, False)}
    while not engine.idle:
        engine.step()
        assert_accounts(engine)
    assert [engine.results(number)[0].token_ids for number in asked] == list(asked.values())
    assert_all_came_back(engine)
    assert {number for number in asked if not engine.rounds(number)[0]} == set(list(asked)[2::3])


@pytest.mark.parametrize("depths", [Full, Measured, lambda: Measured(lambda rows: 1.0), lambda: Measured(lambda rows: rows)], ids=["full", "measured", "rows are free", "rows cost all"])
@pytest.mark.parametrize("reuse", REUSE)
@pytest.mark.parametrize("preempt", ["recompute", "swap"])
@pytest.mark.parametrize("chunk", [None, 2])
def test_preemption_reuse_and_chunks_change_nothing(depths, reuse, preempt, chunk):
    """C069, C082, C084: a pool that is too small, prompts that share pages, trees that are half wrong."""
    model = looping_model()
    stem = random_ids(5, seed=3)
    prompts = [stem + random_ids(n, seed=n) for n in (1, 4, 2, 6)]
    policy = Recompute() if preempt == "recompute" else Swap(100 * page_bytes(model, 2))
    told = Told(texts_of(model, prompts, 14), 4, right=2, siblings=True)
    engine = engine_of(model, pages=22, page_size=2, reuse=REUSE[reuse], preempt=policy, chunk=chunk, token_budget=40, speculate=told, depths=depths())
    for _ in range(2):
        numbers = [engine.add(p, max_new_tokens=14) for p in prompts]
        while not engine.idle:
            engine.step()
            assert_accounts(engine)
        assert [engine.results(n)[0].token_ids for n in numbers] == [solo(model, p, 14) for p in prompts]
    assert engine.trace.of(Preempted) and not told.open
    assert_all_came_back(engine)


@pytest.mark.parametrize("name", ["n-gram", "draft: near", "draft: itself", "first layers"])
@pytest.mark.skipif(not panels_pay(torch.bfloat16), reason="the native CPU kernels do not run here (no GPU needed)")
def test_chains_change_no_bit_in_bf16(name):
    """A row's bits do not depend on the rows beside it, so verifying a chain gives the very logits of plain decoding."""
    model = looping_model(H=6, K=2, D=16).to(torch.bfloat16).pack()
    alone = [generate(model, prompt, max_new_tokens=24, sampling=Sampling(logprobs=0)) for prompt in PROMPTS]
    proposer = NGram(5) if name == "n-gram" else DraftModel(model, 5)
    engine = engine_of(model, pages=256, speculate=proposer, depths=Full(), token_budget=200)
    together = engine.generate(PROMPTS, max_new_tokens=24, sampling=Sampling(logprobs=0))
    assert [c.token_ids for c in together] == [c.token_ids for c in alone]
    assert [[t.logprob for t in c.logprobs] for c in together] == [[t.logprob for t in c.logprobs] for c in alone]


@pytest.mark.parametrize("format", [KVFormat.int8(group=8), KVFormat.kivi(bits=2, group=4, residual=4)], ids=["int8", "kivi"])
@pytest.mark.parametrize("siblings", [False, True, "after"], ids=["chains", "trees", "trees whose first nodes stay"])
@pytest.mark.skipif(not panels_pay(torch.float32), reason="without the native CPU kernels a batch rounds differently (no GPU needed)")
def test_over_pages_in_few_bits(format, siblings):
    """Rejected guesses leave codes and tails as plain decoding leaves them, a text that is swapped out right after too."""
    model = tiny_model(tiny_config(), scale=0.12).pack()

    def alone(prompt):
        cache = PagedQuantizedCache(model.config, format=format, n_pages=60, page_size=4)
        return generate(model, prompt, max_new_tokens=20, cache=cache).token_ids

    wanted = [alone(prompt) for prompt in PROMPTS]
    one = PagedQuantizedCache(model.config, format=format, n_pages=1, page_size=4, max_sequences=4)
    page = sum(x.numel() * x.element_size() for x in one.page_tensors)
    told = Told([[*prompt, *text] for prompt, text in zip(PROMPTS, wanted)], 4, right=1 if siblings == "after" else 2, siblings=siblings)
    engine = Engine(
        model, cache_bytes=one.nbytes + 13 * page, page_size=4, kv_format=format, max_running=4, token_budget=60, preempt=Swap(10**6),
        speculate=told, depths=Full(),
    )  # fmt: skip
    numbers = [engine.add(prompt, max_new_tokens=20) for prompt in PROMPTS]
    while not engine.idle:
        engine.step()
        assert_accounts(engine)
    assert [engine.results(n)[0].token_ids for n in numbers] == wanted and engine.trace.of(Preempted)
    assert guessing(engine.trace).accepted > 15


# -- sampling ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["draft: near", "tree: near", "n-gram"])
@pytest.mark.parametrize("sampling", SETTINGS[:2], ids=["T", "top-p"])
def test_sampled_text_is_distributed_as_the_targets(name, sampling, monkeypatch):
    """C076: every branch of every draw, beside a greedy request that is speculated too."""
    model = small_target()

    def run(draws):
        monkeypatch.setattr("kvedu.engine.drafts.Draws", lambda settings, copy: draws)
        engine = engine_of(model, pages=32, speculate=PROPOSERS[name](model, 2), depths=Full())
        engine.add([2, 1, 2], max_new_tokens=5)
        number = engine.add(SMALL_PROMPT, max_new_tokens=3, sampling=sampling)
        run_out(engine)
        return engine.results(number)[0].token_ids

    assert distance(every_outcome(run), plain_distribution(model, sampling, 3)) < 1e-5


def test_a_seeded_text_alone_is_what_speculate_draws():
    model = looping_model()
    for seed in range(3):
        sampling = Sampling(temperature=0.9, seed=seed)
        engine = engine_of(model, speculate=DraftModel(near(model), 3), depths=Full())
        (got,) = engine.generate(PROMPTS[:1], max_new_tokens=16, sampling=sampling)
        assert got.token_ids == speculate(model, PROMPTS[0], DraftModel(near(model), 3), max_new_tokens=16, sampling=sampling).completion.token_ids
        assert engine.rounds(0)[0] == speculate(model, PROMPTS[0], DraftModel(near(model), 3), max_new_tokens=16, sampling=sampling).rounds


def test_who_decodes_plainly_draws_as_ever():
    """A request without speculation keeps generate's own draws, whoever guesses beside it."""
    model, sampling = looping_model(), Sampling(temperature=1.0, seed=4)
    engine = engine_of(model, speculate=DraftModel(near(model), 3), depths=Full())
    engine.add(PROMPTS[1], max_new_tokens=12)
    number = engine.add(PROMPTS[0], max_new_tokens=12, sampling=sampling, speculate=False, n=2)
    run_out(engine)
    assert [c.token_ids for c in engine.results(number)] == [c.token_ids for c in generate(model, PROMPTS[0], max_new_tokens=12, sampling=sampling, n=2)]


def test_several_completions_of_one_prompt():
    """Forks guess apart, each from its own stream, and their pages come apart when they do."""
    model = looping_model()
    draft = DraftModel(near(model), 3)
    engine = engine_of(model, speculate=draft, depths=Full(), page_size=4)
    number = engine.add(PROMPTS[0], max_new_tokens=12, n=3, sampling=Sampling(temperature=1.0, seed=3))
    greedy = engine.add(PROMPTS[0], max_new_tokens=12, n=2)
    while not engine.idle:
        engine.step()
        assert_accounts(engine)
    texts = [c.token_ids for c in engine.results(number)]
    assert len(set(texts)) == 3 and all(len(rounds) for rounds in engine.rounds(number))
    assert [c.token_ids for c in engine.results(greedy)] == [solo(model, PROMPTS[0], 12)] * 2
    assert draft.draft.cache.sequences == ()
    assert_all_came_back(engine)


# -- where a text ends -------------------------------------------------------------------------

STOP = 11


@pytest.mark.parametrize("cap, tokens, reason", [(6, (10, 10, STOP), "stop"), (3, (10, 10, STOP), "stop"), (2, (10, 10), "length"), (1, (10,), "length")])
def test_a_stop_inside_an_accepted_block(cap, tokens, reason):
    """C079: guesses 10, STOP, 20, 21 are right; what comes after the stop is not shown and not kept, and a stop counts before the cap."""
    model = Scripted({3: 10, 4: 10, 5: STOP, 6: 20, 7: 21}, eos_ids=(STOP,))
    engine = engine_of(model, speculate=Told([[1, 1, 1, 1, 10, 10, STOP, 20, 21, 0, 0]], 4), depths=Full())
    number = engine.add([1] * 4, max_new_tokens=cap)
    run_out(engine)
    (done,) = engine.results(number)
    assert (done.token_ids, done.finish_reason) == (tokens, reason)
    assert_all_came_back(engine)


def test_a_stop_string_inside_an_accepted_block():
    """C087: the text ends before the stop string, across tokens; deltas of one step add up to it."""
    pieces = ["x", "a", "b", "cd", "ef", "g", "h"]
    model = Scripted({2: 1, 3: 2, 4: 3, 5: 4, 6: 5, 7: 6}, V=7)
    model.tokenizer = pieces_tokenizer(pieces)
    told = Told([[0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0, 0]], 5, V=7)
    engine = engine_of(model, speculate=told, depths=Full())
    plain = engine.add([0] * 3, max_new_tokens=8, stop="de", speculate=False)
    number = engine.add([0] * 3, max_new_tokens=8, stop="de")
    shown = [delta for delta in run_out(engine) if delta.prompt == number]
    (want,), (got,) = engine.results(plain), engine.results(number)
    assert (got.text, got.token_ids, got.finish_reason) == (want.text, want.token_ids, "stop") == ("abc", (1, 2, 3, 4), "stop")
    assert "".join(delta.text for delta in shown) == "abc" and engine.rounds(number)[0][0].emitted == 3


@pytest.mark.parametrize("prompt_length", [12, 15])
def test_up_to_the_last_position_and_the_last_page(prompt_length):
    """C080: 16 positions, a table of 4 pages and no more, k 5, a proposer that heeds no limit."""
    model = tiny_model(tiny_config(max_positions=16))
    prompt = random_ids(prompt_length)
    plain = generate(model, prompt, max_new_tokens=50)

    class Careless(Told):
        def _guess(self, ask):
            return TokenTree.chain([5] * 9)

    for proposer in (Careless([]), DraftModel(model, 5), DraftTree(model, (3, 3, 2)), NGram(5)):
        engine = engine_of(model, pages=4, speculate=proposer, depths=Full())
        (done,) = engine.generate([prompt], max_new_tokens=50)
        assert done.token_ids == plain.token_ids and done.finish_reason == "length"
        assert len(prompt) + len(done.token_ids) == 16
        made = 1
        for r in engine.rounds(0)[0]:
            assert r.depth + made + 1 <= len(done.token_ids), "no guess that could not be used"
            made += r.emitted
        assert_all_came_back(engine)


def test_a_draft_that_ends_before_its_target():
    """C080: refused unless asked for; asked for, it falls silent at its own last position, and the text goes on."""
    model = looping_model()
    short = tiny_model(tiny_config(max_positions=12, L=1))
    with pytest.raises(RequestError, match="draft has 12 positions, the target 256"):
        engine_of(model, speculate=DraftModel(short, 3))
    with pytest.raises(RequestError, match="12 positions"):
        engine_of(model).add(PROMPTS[0], speculate=DraftModel(short, 3))
    engine = engine_of(model, speculate=DraftModel(short, 3, shorter=True), depths=Full())
    (done,) = engine.generate([PROMPTS[0]], max_new_tokens=20)
    assert done.token_ids == solo(model, PROMPTS[0], 20)
    guessed = [r.guessed for r in engine.rounds(0)[0]]
    assert guessed[0] == 3 and not any(guessed[-6:])


# -- what is remembered ------------------------------------------------------------------------


def test_only_verified_tokens_are_remembered():
    """C084: block 4, k 3, wrong from the second guess on; then prompt and output as a prompt, twice: warm equals cold."""
    model = looping_model()
    prompt = random_ids(6)
    text = texts_of(model, [prompt], 30)[0]
    engine = engine_of(model, reuse=HashReuse, page_size=4, speculate=Told([text], 3, right=1), depths=Full())
    policy = engine.cache.tables.pool.reuse
    number = engine.add(prompt, max_new_tokens=15)
    while not engine.idle:
        engine.step()
        for entry in policy._by_block.values():
            before, one = [], entry
            while one is not None:
                before, one = [*one.tokens, *before], one.parent
            assert before == text[: len(before)]
    assert all(r.accepted == 1 for r in engine.rounds(number)[0][:-1])
    again = text[:21]
    colds = [engine_of(model, page_size=4, speculate=DraftModel(near(model), 3), depths=Full()) for _ in range(2)]
    for cold, sampling in zip(colds, (Sampling(), Sampling(temperature=0.8, seed=2))):
        (want,) = cold.generate([again], max_new_tokens=8, sampling=sampling)
        for _ in range(2):
            number = engine.add(again, max_new_tokens=8, sampling=sampling, speculate=DraftModel(near(model), 3))
            run_out(engine)
            assert engine.results(number)[0].token_ids == want.token_ids and engine.rounds(number) == cold.rounds(0)
            assert engine.trace.of(Admitted)[-1].reused == 20


def test_guesses_take_nobodys_place():
    """Guesses get what a step leaves: with a budget of just the decodes there are none, and a prompt goes before them."""
    model = looping_model()
    told = Told(texts_of(model, PROMPTS[:3], 20), 6)
    engine = engine_of(model, speculate=told, depths=Full(), max_running=3, token_budget=3)
    assert [c.token_ids for c in engine.generate(PROMPTS[:3], max_new_tokens=20)] == [solo(model, p, 20) for p in PROMPTS[:3]]
    for step in engine.trace.of(Stepped):
        rounds = [e for e in engine.trace.of(Verified) if e.time == step.time]
        assert sum(s.tokens for s in step.shares) + sum(r.guessed for r in rounds) <= 3
    assert guessing(engine.trace).guessed > 0  # once others have ended
    engine = engine_of(model, pages=8, page_size=4, speculate=Told(texts_of(model, PROMPTS[:2], 12), 9, siblings=True), depths=Full())
    numbers = [engine.add(p, max_new_tokens=12) for p in PROMPTS[:2]]
    run_out(engine)
    assert [engine.results(n)[0].token_ids for n in numbers] == [solo(model, p, 12) for p in PROMPTS[:2]]
    plain = engine_of(model, pages=8, page_size=4)
    for p in PROMPTS[:2]:
        plain.add(p, max_new_tokens=12)
    run_out(plain)
    assert len(engine.trace.of(Preempted)) <= len(plain.trace.of(Preempted))


# -- the rest of what a request may ask --------------------------------------------------------


def test_prompt_scores_and_logprobs_are_plain_ones():
    """C066 and prompt_logprobs: what is reported does not change, with a chunk of 3 and pages that are remembered."""
    model = looping_model()
    want = generate(model, PROMPTS[3], max_new_tokens=12, prompt_logprobs=2, sampling=Sampling(logprobs=2))
    engine = engine_of(model, chunk=3, reuse=HashReuse, speculate=Told(texts_of(model, [PROMPTS[3]], 30), 4, right=3, siblings=True), depths=Full())
    for _ in range(2):
        (got,) = engine.generate([PROMPTS[3]], max_new_tokens=12, prompt_logprobs=2, sampling=Sampling(logprobs=2))
        assert got.token_ids == want.token_ids
        for ours, theirs in ((got.logprobs, want.logprobs), (got.prompt_logprobs[1:], want.prompt_logprobs[1:])):
            assert [t.token_id for t in ours] == [t.token_id for t in theirs]
            assert [t.logprob for t in ours] == pytest.approx([t.logprob for t in theirs], abs=1e-4)
    (scored,) = engine.generate([PROMPTS[3]], max_new_tokens=0, prompt_logprobs=2)
    assert scored.token_ids == () and [t.token_id for t in scored.prompt_logprobs[1:]] == PROMPTS[3][1:]


def test_accepting_everything_gives_k_plus_1_tokens_a_round():
    """C077: the draft is the target; 40 tokens, every k; what the trace counts is what the rounds say."""
    model = looping_model()
    for k in (1, 2, 4):
        draft = DraftModel(model, k)
        engine = engine_of(model, pages=64, speculate=draft, depths=Full(), token_budget=60)
        engine.generate(PROMPTS[:2], max_new_tokens=1 + 8 * (k + 1))
        assert all(r.accepted == r.depth == k and r.emitted == k + 1 for n in range(2) for r in engine.rounds(n)[0])
        seen = guessing(engine.trace)
        assert (seen.acceptance_rate, seen.tokens_per_round, seen.by_depth) == (1.0, k + 1.0, (1.0,) * k)
        assert guessing(engine.trace, 1).rounds == 8 and draft.draft.cache.sequences == ()


def test_an_error_is_one_texts_own():
    """A text whose logits are broken ends by error; the other, guessed beside it, ends as it should."""
    model = looping_model()

    class Broken(type(model)):
        def logits(self, hidden_RM):
            out = super().logits(hidden_RM)
            out[self.bad] = torch.nan
            return out

    want = solo(model, PROMPTS[0], 12)
    engine = engine_of(model, speculate=Told([[*PROMPTS[0], *want], *texts_of(model, [PROMPTS[3]], 12)], 3), depths=Full())
    good, bad = engine.add(PROMPTS[0], max_new_tokens=12), engine.add(PROMPTS[3], max_new_tokens=12)
    engine.step()
    model.__class__, model.bad = Broken, slice(5, 6)  # a guess's row of the second text
    engine.step()
    model.__class__ = Broken.__base__
    run_out(engine)
    assert engine.results(bad)[0].finish_reason == "error" and engine.results(good)[0].token_ids == want
    assert_all_came_back(engine)


def test_aborts_release_what_the_proposer_keeps():
    """C071: while waiting, in a prompt, between rounds, twice; and a record that is forgotten."""
    model = looping_model()
    draft, own = DraftModel(near(model), 3), NGram(3)
    engine = engine_of(model, speculate=draft, depths=Full(), max_running=2, chunk=2)
    numbers = [engine.add(p, max_new_tokens=30, speculate=choice, n=n) for p, choice, n in zip(PROMPTS, (True, own, True, own), (2, 1, 1, 1))]
    for _ in range(9):
        engine.step()
    for number in [*numbers, numbers[0]]:
        engine.abort(number)
    engine.forget(numbers[0])
    assert draft.draft.cache.sequences == () and not own._texts
    assert set(engine.drafts._known) == {draft}
    assert_all_came_back(engine)


def test_a_rope_that_would_switch_is_refused_as_ever():
    config = tiny_config(rope=RopeConfig(dim=8, max_positions=64, kind="dynamic", factor=2.0))
    engine = engine_of(tiny_model(config), speculate=NGram(4), depths=Full())
    with pytest.raises(RequestError, match="changes its frequencies"):
        engine.add([1, 2] * 4, max_new_tokens=58)
    (done,) = engine.generate([[1, 2] * 4], max_new_tokens=57)
    assert done.token_ids == solo(engine.model, [1, 2] * 4, 57)


def test_windows_and_trees_in_one_model():
    """Layers with and without a sliding window: a tree's paths are cut by the one and not by the other."""
    model = looping_model(L=3, sliding_window=5, windowed_layers=(True, False, True))
    prompts = PROMPTS[:2]
    engine = engine_of(model, pages=80, speculate=DraftTree(near(model), (2, 2, 1, 1)), depths=Full(), token_budget=100)
    assert [c.token_ids for c in engine.generate(prompts, max_new_tokens=24)] == [solo(model, p, 24) for p in prompts]
    assert any(r.guessed > r.depth for n in range(2) for r in engine.rounds(n)[0])


def test_no_guess_is_plain_decoding():
    class Silent(Proposer):
        def propose(self, asks):
            return [EMPTY for _ in asks]

    model = looping_model()
    engine = engine_of(model, speculate=Silent(), depths=Full())
    assert engine.generate(PROMPTS[:2], max_new_tokens=8)[1].token_ids == solo(model, PROMPTS[1], 8)
    assert guessing(engine.trace).tokens_per_round == 1.0 and guessing(engine.trace).guessed == 0
