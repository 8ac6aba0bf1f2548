"""The loop: where it stops, what it writes, what it leaves; one round after another against plain decoding."""

import pytest
import torch

from cache_cases import contents, feed
from kvedu import HashReuse, NoCache, PagedCache, StaticCache, generate
from kvedu.errors import CacheFull, KveduError, RequestError
from kvedu.model.request import make_request
from kvedu.model.sampling import Sampling
from kvedu.speculative.draft_model import DraftModel
from kvedu.speculative.ngram import NGram
from kvedu.speculative.speculate import speculate
from kvedu.speculative.speculation import Speculation
from kvedu.speculative.tree import TokenTree
from kvedu.speculative.verify import exact
from rigged import Rigged
from scripted import Scripted, pieces_tokenizer
from tiny import random_ids, tiny_config, tiny_model

STOP = 50
SCRIPT = dict(enumerate([10, 11, STOP, 20, 21, 22], start=2))
"""What follows a prompt of three tokens."""


def scripted(**config):
    return Scripted(SCRIPT, **({"eos_ids": (STOP,)} | config))


@pytest.mark.parametrize("cap, tokens, reason", [(5, (10, 11, STOP), "stop"), (3, (10, 11, STOP), "stop"), (2, (10, 11), "length"), (1, (10,), "length")])
@pytest.mark.parametrize("heeds", [True, False])
def test_a_stop_counts_before_the_cap(cap, tokens, reason, heeds):
    """C079: also with k = 4 at max_new_tokens 1, and from a proposer that ignores its limit."""
    model = scripted()
    cache = StaticCache(model.config, max_length=3 + cap - 1)  # not one slot more than plain decoding needs
    done = speculate(model, [1, 2, 3], Rigged(SCRIPT, heeds=heeds), max_new_tokens=cap, cache=cache, keep=True)
    assert done.completion.token_ids == tokens and done.completion.finish_reason == reason
    assert cache.length(done.completion.seq) == 3 + len(tokens) - 1


def test_what_comes_after_an_eos_in_the_block_is_dropped():
    """C079: all six guesses are right; the block ends at the third, and ignore_eos brings the others."""
    model = scripted()
    cut = speculate(model, [1, 2, 3], Rigged(SCRIPT, k=6), max_new_tokens=6)
    assert cut.completion.token_ids == (10, 11, STOP)
    assert [(r.guessed, r.accepted, r.emitted) for r in cut.rounds] == [(4, 4, 2)]  # six were cut to what max_new_tokens leaves
    whole = speculate(model, [1, 2, 3], Rigged(SCRIPT, k=6), max_new_tokens=6, ignore_eos=True)
    assert whole.completion.token_ids == (10, 11, STOP, 20, 21, 22) and len(whole.rounds) == 1


@pytest.mark.parametrize("stop, text", [("bc", "a"), ("cd", "ab"), ("da", "abc"), ("zz", "abcdabcd")])
def test_stop_strings_inside_a_block(stop, text):
    """C087: text and tokens are plain decoding's; what follows the stop never shows."""
    script = {position: 1 + (position - 1) % 4 for position in range(1, 12)}
    model = Scripted(script)
    model.tokenizer = pieces_tokenizer(["?", "a", "b", "c", "d"])
    plain = generate(model, [0, 0], max_new_tokens=8, stop=stop)
    for k in (1, 3, 7):
        done = speculate(model, [0, 0], Rigged(script, k), max_new_tokens=8, stop=stop).completion
        assert (done.text, done.token_ids, done.finish_reason) == (plain.text, plain.token_ids, plain.finish_reason)
        assert done.text == text


@pytest.mark.parametrize("kind", ["static", "paged"])
def test_rows_that_accept_0_2_and_4(kind):
    """C082: unequal prompts, unequal luck, then three rounds in which everything is wrong; lengths and positions per row."""
    script = {position: 10 + position for position in range(40)}
    model = Scripted(script)
    config = model.config
    cache = StaticCache(config, max_sequences=3, max_length=40) if kind == "static" else PagedCache(config, n_pages=30, page_size=4)
    prompts = [[1, 2], [1, 2, 3, 4, 5], [1, 2, 3]]
    luck = Rigged(script, 4, lambda key, round: 0 if 2 <= round < 5 else 2 * key[0])
    done = speculate(model, prompts, luck, max_new_tokens=20, cache=cache, keep=True)
    for i, (prompt, one) in enumerate(zip(prompts, done)):
        assert one.completion.token_ids == tuple(10 + len(prompt) - 1 + t for t in range(20))
        assert [r.accepted for r in one.rounds[:5]] == [2 * i, 2 * i, 0, 0, 0]
        assert cache.length(one.completion.seq) == len(prompt) + 19
        assert cache._positions[one.completion.seq] == list(range(len(prompt) + 19))


def test_lengths_agree_at_each_round(monkeypatch):
    """C082: at the start of a round the cache holds each text but its last token."""
    seen = []
    model, cache = tiny_model(), PagedCache(tiny_config(), n_pages=40, page_size=4)
    verify = Speculation._verify

    def spy(self, alive, trees):
        seen.append([self.cache.length(run.seq) - len(run.ids) for run in alive])
        return verify(self, alive, trees)

    monkeypatch.setattr(Speculation, "_verify", spy)
    speculate(model, [random_ids(3), random_ids(6)], DraftModel(tiny_model(seed=1), 3), max_new_tokens=12, cache=cache)
    assert len(seen) > 3 and {d for each in seen for d in each} == {-1}


@pytest.mark.parametrize("kind", ["paged", "static"])
@pytest.mark.parametrize("prompt_length", [12, 15])
def test_nothing_is_written_past_the_end(kind, prompt_length):
    """C079, C080: 16 positions, k = 5, a proposer that ignores its limit; the neighbor's keys are as they were."""
    config = tiny_config(max_positions=16)
    model = tiny_model(config)
    cache = StaticCache(config, max_sequences=2, max_length=16) if kind == "static" else PagedCache(config, n_pages=8, page_size=4)
    neighbor = cache.add()
    feed(cache, {neighbor: random_ids(16)})
    before = [x.clone() for layer in range(config.L) for x in contents(cache, neighbor, layer)]
    prompt = random_ids(prompt_length)
    plain = generate(model, prompt, max_new_tokens=50)
    for proposer in (Rigged({}, 5, heeds=False), DraftModel(model, 5), NGram(5)):
        done = speculate(model, prompt, proposer, max_new_tokens=50, cache=cache).completion
        assert done.token_ids == plain.token_ids and done.finish_reason == "length"
        assert len(prompt) + len(done.token_ids) == 16
    after = [x for layer in range(config.L) for x in contents(cache, neighbor, layer)]
    assert all(torch.equal(a, b) for a, b in zip(before, after))


class Wide(Rigged):
    """Guesses every token of the vocabulary side by side: a tree that eats any room."""

    def _guess(self, ask):
        return TokenTree(tuple(range(self.V)), (-1,) * self.V)


def test_a_pool_too_small_for_guesses_brings_fewer():
    """Two texts share pages that just hold them: each alone has room for guesses, both together have not."""
    model = tiny_model()
    prompts = [random_ids(4, seed=1), random_ids(4, seed=2)]
    cache = PagedCache(model.config, n_pages=6, page_size=4)
    plain = generate(model, prompts, max_new_tokens=9, cache=cache)
    done = speculate(model, prompts, Wide({}), max_new_tokens=9, cache=cache)
    assert [d.completion.token_ids for d in done] == [p.token_ids for p in plain]
    assert any(r.guessed == 1 for r in done[0].rounds[:-1]) and cache.available == 6
    alone = speculate(model, prompts[0], Wide({}), max_new_tokens=9, cache=cache)
    assert alone.rounds[0].guessed == 24 - 4 - 1 and alone.completion.token_ids == plain[0].token_ids
    with pytest.raises(CacheFull):  # what does not fit plainly does not fit at all
        speculate(model, prompts, Wide({}), max_new_tokens=20, cache=cache)
    assert cache.available == 6


def test_a_pool_too_small_for_any_guess_decodes_plainly():
    """16 places: plain decoding just fits, since one text ends when 7 and 9 are taken; so speculation fits too."""
    model = Scripted(dict.fromkeys(range(8), 9) | {8: STOP}, eos_ids=(STOP,))
    cache = PagedCache(model.config, n_pages=16, page_size=1)
    short, long = speculate(model, [[1] * 4, [1] * 6], Wide({}), max_new_tokens=11, cache=cache)
    assert short.completion.token_ids == (9,) * 5 + (STOP,) and long.completion.token_ids == (9,) * 3 + (STOP,)
    assert [r.guessed for r in long.rounds] == [1, 1, 0] and cache.available == 16


def test_only_verified_tokens_are_remembered():
    """C084: block 4, k 3, drafts wrong at the second; then prompt + output again: warm = cold, acceptance too."""
    model = tiny_model()
    draft = tiny_model(seed=1)
    prompt = random_ids(6)
    cache = PagedCache(model.config, n_pages=32, page_size=4, reuse=HashReuse(4))
    first = speculate(model, prompt, DraftModel(draft, 3), max_new_tokens=14, cache=cache, keep=True)
    ids = [*prompt, *first.completion.token_ids]
    assert any(r.accepted < r.depth for r in first.rounds)
    cache.remember(first.completion.seq, ids[:-1])
    cache.free(first.completion.seq)
    for sampling in (Sampling(), Sampling(temperature=0.8, seed=2)):
        cold = speculate(model, ids, DraftModel(draft, 3), max_new_tokens=12, sampling=sampling)
        for _ in range(2):
            seq, reused = cache.add_prefix(ids)
            assert reused == 16
            warm = speculate(model, [ids], DraftModel(draft, 3), max_new_tokens=12, sampling=sampling, cache=cache, seqs=[seq])[0]
            assert warm.completion.token_ids == cold.completion.token_ids and warm.rounds == cold.rounds
            cache.free(seq)


def test_a_stream_that_is_closed_gives_everything_back():
    """C071: closed after two tokens: sequences, draft sequences and lookup tables are gone."""
    model, draft = tiny_model(), DraftModel(tiny_model(seed=1), 3)
    cache = PagedCache(model.config, n_pages=40, page_size=4)
    requests = [make_request(random_ids(5, seed=i), model.config, None, 30, sampling=Sampling()) for i in range(2)]
    stream = Speculation(model, requests, draft, cache).stream()
    for _ in range(4):
        next(stream)
    assert len(draft.draft.cache.sequences) == 2 and len(cache.sequences) == 2
    stream.close()
    assert draft.draft.cache.sequences == () == cache.sequences and cache.available == 40


def test_a_failing_verdict_undoes_the_round():
    """The rule runs inside the step: if it raises, a caller's own sequence holds what it held."""
    model, cache = tiny_model(), StaticCache(tiny_config(), max_length=64)
    seq, calls = cache.add(), []

    def rule(tree, target, draws):
        calls.append(len(tree))
        if len(calls) == 3:
            raise RuntimeError("broken")
        return exact(tree, target, draws)

    prompt = random_ids(5)
    with pytest.raises(RuntimeError, match="broken"):
        speculate(model, [prompt], DraftModel(model, 3), max_new_tokens=20, cache=cache, seqs=[seq], rule=rule)
    assert calls == [0, 3, 3] and cache.length(seq) == 5 + 4  # prompt and one whole round


def test_several_completions_of_one_prompt():
    """n > 1: forks speculate apart, and the first is what a single one would be."""
    model = tiny_model()
    sampling = Sampling(temperature=1.0, seed=3)

    def run(n):
        request = make_request(random_ids(5), model.config, None, 12, sampling=sampling, n=n)
        speculation = Speculation(model, [request], DraftModel(tiny_model(seed=1), 3), PagedCache(model.config, n_pages=40, page_size=4))
        for _ in speculation.stream():
            pass
        return [speculation.completions[0, copy].token_ids for copy in range(n)]

    three = run(3)
    assert len(set(three)) == 3 and three[0] == run(1)[0]


def test_what_makes_no_sense_is_refused_before_any_work():
    model = tiny_model()
    good = random_ids(3)
    cases = [
        (lambda: speculate(model, good, NGram(), cache=NoCache(model.config)), "NoCache cannot take back rejected tokens"),
        (lambda: speculate(model, [good, good], NGram(), sampling=[Sampling()]), "1 sampling settings for 2 prompts"),
        (lambda: speculate(model, [], NGram()), "empty"),
        (lambda: speculate(model, [97], NGram()), "id 97 is outside"),
        (lambda: speculate(model, good, NGram(), cache=StaticCache(model.config, max_length=5)), "needs 130 places"),
    ]
    model.hidden = None
    for call, message in cases:
        with pytest.raises(KveduError, match=message):
            call()
    assert issubclass(RequestError, KveduError)
