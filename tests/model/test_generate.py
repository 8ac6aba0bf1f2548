"""generate: batches, stops, limits, continuations; each row is what the prompt gives alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_cases import CACHES, KEEPING
from kvedu import ConcatCache, NoCache, Sampling, StaticCache, generate, stream
from kvedu.caches.streaming import StreamingCache
from kvedu.caches.window import WindowCache
from kvedu.errors import CacheFull, KveduError, RequestError
from kvedu.model.loops import greedy_uncached
from rope_scalings import SCALINGS
from scripted import Scripted, pieces_tokenizer
from kvedu.rope_config import rope_from_hf
from tiny import random_ids, tiny_config, tiny_model


def solo(model, prompt, n):
    """The judge: a full pass each step, alone, no cache."""
    return tuple(greedy_uncached(model, prompt, n))


@pytest.mark.parametrize("name", CACHES)
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)])
def test_unequal_prompts_together_equal_each_alone(name, heads):
    """C008, C046: rows of a batch keep their own positions; tokens = solo, logits within 1e-4.

    A cache that rounds or lets go gives each row what that cache gives it alone.
    """
    cache = CACHES[name](tiny_config(*heads))
    model = tiny_model(cache.config)
    prompts = [random_ids(n, seed=n) for n in (3, 7, 1, 12)]
    got = generate(model, prompts, max_new_tokens=8, cache=cache, sampling=Sampling(logprobs=0))
    exact = name in KEEPING or name == "none"
    for prompt, completion in zip(prompts, got):
        judge = NoCache(model.config) if exact else CACHES[name](tiny_config(*heads))
        alone = generate(model, prompt, max_new_tokens=8, cache=judge, sampling=Sampling(logprobs=0))
        assert completion.token_ids == (solo(model, prompt, 8) if exact else alone.token_ids)
        for a, b in zip(completion.logprobs, alone.logprobs):
            # In a batch the last bits of a key may differ, and tip its rounding to the next code.
            assert a.logprob == pytest.approx(b.logprob, abs=1e-4 if exact else 2e-2)


@pytest.mark.parametrize("make", [lambda c: WindowCache(c, window=5), lambda c: StreamingCache(c, window=5, sinks=0)])
def test_a_cache_that_lets_tokens_go_is_fed_each_token_once(make):
    """A model with a window of 5 and a cache that holds 5: tokens = a full pass each step, and all but the last were fed."""
    model = tiny_model(tiny_config(sliding_window=5))
    prompts = [random_ids(n, seed=n) for n in (3, 7, 12)]
    cache = make(model.config)
    got = generate(model, prompts, max_new_tokens=9, cache=cache, keep=True)
    assert [c.token_ids for c in got] == [solo(model, p, 9) for p in prompts]
    assert [cache.seen(c.seq) for c in got] == [len(p) + 8 for p in prompts]
    assert [cache.length(c.seq) for c in got] == [5, 5, 5]


@pytest.mark.parametrize("name", KEEPING)
def test_a_second_turn_on_the_same_cache(name):
    """C008: both rows go on in the same cache with two more tokens; only what is new is computed."""
    cache = CACHES[name](tiny_config())
    model = tiny_model(cache.config)
    prompts = [random_ids(3), random_ids(7, seed=1)]
    first = generate(model, prompts, max_new_tokens=8, cache=cache, keep=True)
    history = [[*p, *c.token_ids, 5, 6] for p, c in zip(prompts, first)]
    steps = []
    original = cache.step
    cache.step = lambda counts, parents=None: steps.append(dict(counts)) or original(counts, parents)
    second = generate(model, history, max_new_tokens=4, cache=cache, seqs=[c.seq for c in first])
    assert [c.token_ids for c in second] == [solo(model, h, 4) for h in history]
    assert list(steps[0].values()) == [3, 3], "the last token of turn one was never fed back, and two are new"
    assert len(cache.sequences) == 2 and [c.seq for c in second] == [c.seq for c in first]


@pytest.mark.parametrize("capacity, fits", [(8, True), (7, True), (6, False)])
def test_a_static_cache_needs_prompt_plus_new_minus_one(capacity, fits):
    """C013: P = 4, N = 4: 8 and 7 places work, 6 raises before anything is written; then P = 9 raises too."""
    model = tiny_model()
    cache = StaticCache(model.config, max_length=capacity)
    prompt = random_ids(4)
    if fits:
        assert generate(model, prompt, max_new_tokens=4, cache=cache).token_ids == solo(model, prompt, 4)
    else:
        with pytest.raises(CacheFull, match="needs 7 places .* the cache has 6"):
            generate(model, prompt, max_new_tokens=4, cache=cache)
    with pytest.raises(CacheFull, match="needs 12 places"):
        generate(model, random_ids(9), max_new_tokens=4, cache=cache)
    assert cache.sequences == () and all(not x.any() for x in (*cache.k, *cache.v)), "no old key is left"


def test_the_default_cache_is_just_large_enough():
    """C013: the cache that generate makes itself is sized by the request, and a longer second call makes another."""
    model = tiny_model()
    for P in (4, 9):
        assert generate(model, random_ids(P), max_new_tokens=4).token_ids == solo(model, random_ids(P), 4)


def test_pad_equal_to_eos_inside_a_prompt():
    """C010: EOS tokens of a multi-turn prompt are ordinary context, also in a batch and at the prompt's end."""
    config = tiny_config(eos_ids=(2,), pad_id=2)
    model = tiny_model(config, seed=4)
    prompts = [[5, 2, 7, 8], [5, 2, 7, 8, 9, 10, 11, 2], [2]]
    for prompt, completion in zip(prompts, generate(model, prompts, max_new_tokens=5)):
        wanted = solo(model, prompt, 5)
        wanted = wanted[: wanted.index(2) + 1] if 2 in wanted else wanted
        assert completion.token_ids == wanted and len(wanted) >= 1


def test_eos_and_length_are_checked_on_the_first_token():
    """C024: the token that prefill yields can end a completion; no decode step is run and the places are free at once."""
    for model, n, reason in ((Scripted({2: 7}, eos_ids=(7,)), 9, "stop"), (Scripted({2: 5}, eos_ids=(7,)), 1, "length")):
        cache = ConcatCache(model.config)
        steps = []
        original = cache.step
        cache.step = lambda counts, parents=None: steps.append(1) or original(counts, parents)
        completion = generate(model, [1, 2, 3], max_new_tokens=n, cache=cache)
        assert completion.finish_reason == reason and len(completion.token_ids) == 1
        assert len(steps) == 1 and cache.sequences == () and cache.nbytes == 0


@pytest.mark.parametrize("eos", [(2, 7), (7,)])
def test_every_eos_id_ends_the_text(eos):
    """C030: the fourth token is 7, one of the EOS ids: it ends the completion and is not in the text."""
    model = Scripted({2: 11, 3: 12, 4: 13, 5: 7, 6: 14}, eos_ids=eos)
    model.tokenizer = pieces_tokenizer([f"<{i}>" for i in range(97)])
    completion = generate(model, [1, 2, 3], max_new_tokens=20)
    assert completion.text == "<11><12><13>" and completion.finish_reason == "stop"
    assert completion.token_ids == (11, 12, 13, 7)
    going_on = generate(model, [1, 2, 3], max_new_tokens=5, ignore_eos=True)
    assert going_on.token_ids == (11, 12, 13, 7, 14) and going_on.finish_reason == "length"


def test_a_stop_counts_before_the_length_cap():
    """C079: cap 3 with the stop third: stop; cap 2: length; nothing after either."""
    for cap, ids, reason in ((5, (10, 11, 7), "stop"), (3, (10, 11, 7), "stop"), (2, (10, 11), "length")):
        completion = generate(Scripted({0: 10, 1: 11, 2: 7, 3: 20}, eos_ids=(7,)), [1], max_new_tokens=cap)
        assert (completion.token_ids, completion.finish_reason) == (ids, reason)


@pytest.mark.parametrize(
    "said, stop, text, reason",
    [
        (["DEF", "G", "HI", "J", "K"], ["DEFGHIJ"], "", "stop"),
        (["DEF", "G", "X", "Y"], ["DEFGHIJ"], "DEFGXY", "length"),
        (["a", '","', "b"], ['",'], "a", "stop"),
        (["x", "ab", "c", "d"], ["abcd", "ab"], "x", "stop"),
        (["x", "DE"], ["DEF"], "xDE", "length"),
    ],
)
def test_stop_strings(said, stop, text, reason):
    """C087: stops across tokens and inside one, false alarms, two stops; streamed text = whole text, cut exactly."""
    pieces = ["<0>", *dict.fromkeys(said)]
    model = Scripted({2 + i: pieces.index(piece) for i, piece in enumerate(said)})
    model.tokenizer = pieces_tokenizer(pieces)
    whole = generate(model, [1, 1, 1], max_new_tokens=len(said), stop=stop)
    assert (whole.text, whole.finish_reason) == (text, reason)
    sent = list(stream(model, [1, 1, 1], max_new_tokens=len(said), stop=stop))
    assert "".join(d.text for d in sent) == text
    assert [d.finish_reason for d in sent] == [None] * (len(sent) - 1) + [reason]


def test_no_new_tokens_asked_for():
    """C023: max_new_tokens 0 yields none, and scores the prompt when asked: 5 entries, only the first empty."""
    model, prompt = tiny_model(), random_ids(5)
    plain = generate(model, prompt, max_new_tokens=0)
    assert plain.token_ids == () and plain.finish_reason == "length" and plain.prompt_logprobs is None
    scored = generate(model, [prompt, random_ids(3)], max_new_tokens=0, prompt_logprobs=2)[0]
    assert scored.token_ids == () and len(scored.prompt_logprobs) == 5 and scored.prompt_logprobs[0] is None
    with_tokens = generate(model, prompt, max_new_tokens=2, prompt_logprobs=2)
    assert with_tokens.prompt_logprobs == scored.prompt_logprobs
    cache = NoCache(model.config)
    with torch.inference_mode(), cache.step({cache.add(): 5}) as view:
        logprobs = torch.log_softmax(model(torch.tensor(prompt), view).double(), -1)
    for t, entry in enumerate(scored.prompt_logprobs[1:]):
        assert entry.token_id == prompt[t + 1]
        assert entry.logprob == pytest.approx(float(logprobs[t, prompt[t + 1]]), abs=1e-5) and len(entry.top) == 2


def test_several_completions_of_one_prompt():
    """C064: n = 4 of one seed differ and repeat; copy 0 is what the request alone gives; forks share the prompt's cost."""
    model, prompt = tiny_model(scale=0.1), random_ids(6)
    warm = Sampling(temperature=1.0, seed=42)
    for make in (lambda c: None, ConcatCache, NoCache):
        four = generate(model, prompt, n=4, max_new_tokens=8, sampling=warm, cache=make(model.config))
        texts = [c.token_ids for c in four]
        assert len(set(texts)) == 4
        assert texts == [c.token_ids for c in generate(model, prompt, n=4, max_new_tokens=8, sampling=warm)]
        assert texts[0] == generate(model, prompt, max_new_tokens=8, sampling=warm).token_ids
    pair = generate(model, [prompt, prompt], max_new_tokens=8, sampling=warm)
    assert pair[0].token_ids == pair[1].token_ids


def test_mixed_settings_in_one_batch():
    """A batch may mix every setting; each row is its own request's."""
    model = tiny_model()
    prompts = [random_ids(n, seed=n) for n in (2, 5, 9)]
    mixed = [Sampling(), Sampling(temperature=0.8, top_p=0.9, seed=1), Sampling(temperature=1.2, top_k=5, seed=2, repetition_penalty=1.3)]
    together = generate(model, prompts, max_new_tokens=10, sampling=mixed)
    alone = [generate(model, p, max_new_tokens=10, sampling=s) for p, s in zip(prompts, mixed)]
    assert [c.token_ids for c in together] == [c.token_ids for c in alone]


@settings(max_examples=30, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 14), min_size=1, max_size=6), n_new=st.integers(1, 12),
    name=st.sampled_from(KEEPING), seed=st.integers(0, 5),
)
def test_any_batch_equals_each_alone(lengths, n_new, name, seed):
    """C046: whatever the company and whenever neighbours end, every row is solo's."""
    cache = CACHES[name](tiny_config(eos_ids=(3, 4, 5, 6)))
    model = tiny_model(cache.config, seed=seed)
    prompts = [random_ids(n, seed=seed + 7 * i) for i, n in enumerate(lengths)]
    for prompt, completion in zip(prompts, generate(model, prompts, max_new_tokens=n_new, cache=cache)):
        wanted = solo(model, prompt, n_new)
        end = next((i + 1 for i, token in enumerate(wanted) if token in (3, 4, 5, 6)), n_new)
        assert completion.token_ids == wanted[:end]
        assert completion.finish_reason == ("stop" if wanted[end - 1] in (3, 4, 5, 6) else "length")


def test_bf16_rows_agree_within_its_tolerance():
    """C046: in bf16 a neighbour may change the last bits, no more: logits of the prompt's end within 2 % of their size."""
    model = tiny_model(scale=0.2).to(torch.bfloat16)
    prompt = random_ids(9)

    def last_logits(mates):
        cache = StaticCache(model.config, max_sequences=len(mates) + 1, max_length=20, dtype=torch.bfloat16)
        seqs = [cache.add() for _ in range(len(mates) + 1)]
        ids = [prompt, *mates]
        with torch.inference_mode(), cache.step({seq: len(i) for seq, i in zip(seqs, ids)}) as view:
            return model(torch.tensor([t for i in ids for t in i]), view, view.last_rows)[0].float()

    alone = last_logits([])
    for n in (1, 3, 7):
        assert (last_logits([random_ids(3 + i, seed=i) for i in range(n)]) - alone).abs().max() <= 0.02 * alone.abs().max()


def test_an_early_close_frees_what_was_held():
    model = tiny_model()
    cache = ConcatCache(model.config)
    pieces = stream(model, [random_ids(3), random_ids(4)], max_new_tokens=50, cache=cache, n=2)
    next(pieces)
    assert len(cache.sequences) == 4
    pieces.close()
    assert cache.sequences == () and cache.nbytes == 0


def test_context_length_ends_a_completion():
    """Prompt and completion together have at most max_positions tokens; then the reason is length."""
    model = tiny_model(tiny_config(max_positions=16))
    completion = generate(model, random_ids(12), max_new_tokens=50)
    assert len(completion.token_ids) == 4 and completion.finish_reason == "length"
    assert completion.token_ids == solo(model, random_ids(12), 4)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_crossing_a_rope_switch_is_refused_up_front(kind):
    rope = rope_from_hf({"rope_scaling": SCALINGS[kind]}, 8, 64)
    model = tiny_model(tiny_config(rope=rope))
    switch = rope.switch_length
    prompt = random_ids(switch - 2)
    assert generate(model, prompt, max_new_tokens=3).token_ids == solo(model, prompt, 3)
    with pytest.raises(RequestError, match=f"would cross length {switch}"):
        generate(model, prompt, max_new_tokens=4)
    uncached = generate(model, prompt, max_new_tokens=6, cache=NoCache(model.config))
    assert uncached.token_ids == solo(model, prompt, 6)


def test_bad_requests_are_refused_before_any_work():
    """C021 and bad input: one clear error each, naming what came and what to try; the model never runs."""
    model = tiny_model(tiny_config(max_positions=16))
    model.hidden = None  # running it would raise TypeError
    good = random_ids(3)
    cases = [
        (([],), {}, "empty"),
        (([good, []],), {}, "empty"),
        (("text",), {}, "no tokenizer"),
        (([97],), {}, "id 97 is outside the vocabulary of 97"),
        (([good, [-1]],), {}, "id -1 is outside"),
        ((random_ids(17),), {}, "17 tokens; this model has 16 positions"),
        ((random_ids(16),), {}, "16 tokens; this model has 16 positions"),
        ((good,), dict(max_new_tokens=-1), "max_new_tokens must be 0 or more"),
        ((good,), dict(n=0), "n counts completions"),
        ((good,), dict(stop="x"), "stop strings need a tokenizer"),
        (([good, good],), dict(sampling=[Sampling()]), "1 sampling settings for 2 prompts"),
        ((good,), dict(seqs=[0]), "seqs continues sequences"),
        ((3.5,), {}, "a prompt is text, token ids or chat messages"),
        (([[1.5, "a"]],), {}, "a prompt is text, token ids or chat messages"),
    ]
    for args, options, message in cases:
        with pytest.raises(KveduError, match=message):
            generate(model, *args, **options)


def test_empty_text_with_a_tokenizer_is_an_empty_prompt():
    """C021: '' has no tokens where no BOS is added."""
    model = tiny_model()
    model.tokenizer = pieces_tokenizer(["a", "b"])
    with pytest.raises(RequestError, match="empty"):
        generate(model, "")
