"""A draft model: in step with the target, within its own limits, refused where it speaks another language."""

import pytest
import torch

from kvedu import ConcatCache, NoCache, PagedCache, StaticCache, generate
from kvedu.errors import RequestError
from kvedu.model.sampling import Sampling
from kvedu.rope_config import RopeConfig
from kvedu.speculative.draft_model import DraftModel
from kvedu.speculative.draft_tree import DraftTree
from kvedu.speculative.first_layers import first_layers
from kvedu.speculative.speculate import speculate
from scripted import pieces_tokenizer
from tiny import random_ids, tiny_config, tiny_model

PROMPTS = [random_ids(5, seed=1), random_ids(2, seed=2), random_ids(9, seed=3)]


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, top_p=0.9, seed=1)], ids=["greedy", "sampled"])
def test_a_draft_that_is_the_target_is_always_right(k, sampling):
    """C077: acceptance 100 % in every round, k + 1 tokens a round, over 40 tokens."""
    model = tiny_model()
    new = 1 + 40 // (k + 1) * (k + 1)
    done = speculate(model, PROMPTS, DraftModel(model, k), max_new_tokens=new, sampling=sampling)
    for one in done:
        assert [(r.guessed, r.accepted, r.emitted) for r in one.rounds] == [(k, k, k + 1)] * (40 // (k + 1))
        assert one.acceptance(1) == one.acceptance(k) == 1 and one.tokens_per_round == k + 1


class Watched(DraftModel):
    """Notes, at each round's first pass, what the draft's cache then holds beside the text."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.passes, self.starts = [], []

    def propose(self, asks):
        first = len(self.passes)
        self.texts = {ask.key: list(ask.ids) for ask in asks}
        trees = super().propose(asks)
        self.starts.append(first)
        return trees

    def _run(self, new):
        logits = super()._run(new)
        self.passes.append({key: (list(self.draft._held[key][1]), self.draft.length(key), len(t)) for key, t in new.items()})
        if self.passes and all(len(t) == self.draft.length(key) for key, t in self.texts.items()):
            self.in_step = getattr(self, "in_step", 0) + 1
        return logits


@pytest.mark.parametrize("draft_seed", [0, 1])
def test_both_caches_are_in_step(draft_seed):
    """C077: after a round's first pass the draft holds exactly the text, whether all guesses before were right or none;
    that pass brings one token, or two where the last guess of the round before was right and never run."""
    model = tiny_model()
    draft = Watched(tiny_model(seed=draft_seed), 3)
    done = speculate(model, PROMPTS[0], draft, max_new_tokens=25)
    key, text = (0, 0), [*PROMPTS[0], *done.completion.token_ids]
    at = len(PROMPTS[0]) + 1
    for i, (start, round_) in enumerate(zip(draft.starts, done.rounds)):
        held, length, brought = draft.passes[start][key]
        assert held[:at] == text[:at] and draft.passes[start][key][1] == length
        if i:
            before = done.rounds[i - 1]
            assert brought == 1 + (before.accepted == before.guessed)
        at += round_.emitted
    assert draft.in_step == len(draft.starts)


@pytest.mark.parametrize("cache", [None, "static", "paged"])
def test_a_draft_with_a_shorter_context(cache):
    """C080: beyond the draft's 8 positions the target goes on alone; nothing is written past them."""
    model, config = tiny_model(), tiny_config(L=1, max_positions=8)
    small = {"static": StaticCache(config, max_sequences=3, max_length=8), "paged": PagedCache(config, n_pages=12, page_size=4)}.get(cache)
    draft = DraftModel(tiny_model(config, seed=2), 5, small, shorter=True)
    run, lengths = draft.draft.run, []

    def watched(new):
        logits = run(new)
        lengths.extend(draft.draft.length(key) for key in new)
        return logits

    draft.draft.run = watched
    done = speculate(model, PROMPTS, draft, max_new_tokens=12)
    assert max(lengths) == 8  # up to the last position, not past it
    for prompt, one in zip(PROMPTS, done):
        assert one.completion.token_ids == generate(model, prompt, max_new_tokens=12).token_ids
    assert max(r.guessed for one in done[:2] for r in one.rounds) > 0
    assert all(r.guessed == 0 for r in done[2].rounds) and done[1].rounds[-1].guessed == 0


def test_a_draft_with_a_shorter_context_must_be_asked_for():
    """C080: unasked it is refused, with both numbers; one as long as the target, or longer, is not."""
    model = tiny_model()
    for make in (lambda draft: DraftModel(draft), lambda draft: DraftTree(draft, (2, 1))):
        with pytest.raises(RequestError, match="draft has 255 positions, the target 256.*shorter=True"):
            speculate(model, [1], make(tiny_model(tiny_config(L=1, max_positions=255))))
        make(tiny_model(tiny_config(L=1, max_positions=256))).check(model)
        make(tiny_model(tiny_config(L=1, max_positions=300))).check(model)


def test_a_draft_cache_that_is_too_small():
    """Three texts, pages for about one: what does not fit is not guessed, the text stays right."""
    model = tiny_model()
    draft = DraftModel(tiny_model(seed=1), 4, PagedCache(model.config, n_pages=5, page_size=4))
    done = speculate(model, PROMPTS, draft, max_new_tokens=15)
    for prompt, one in zip(PROMPTS, done):
        assert one.completion.token_ids == generate(model, prompt, max_new_tokens=15).token_ids
    assert draft.draft.cache.available == 5


def test_a_draft_whose_rope_would_switch():
    """Past the length where its RoPE changes its frequencies a draft guesses nothing, rather than fail."""
    config = tiny_config(L=1, rope=RopeConfig(dim=8, max_positions=64, kind="dynamic", factor=2.0, original_max_positions=8))
    done = speculate(tiny_model(), PROMPTS[1], DraftModel(tiny_model(config), 4), max_new_tokens=16)
    assert done.rounds[0].guessed > 0 and done.rounds[-1].guessed == 0


def test_another_vocabulary_is_refused():
    """Vocabularies of other sizes, and of one size with other tokens: the numbers that disagree are named."""
    model = tiny_model()
    with pytest.raises(RequestError, match="vocabulary of 96 tokens, the target one of 97"):
        speculate(model, [1], DraftModel(tiny_model(tiny_config(V=96))))
    model, draft = tiny_model(tiny_config(V=3)), tiny_model(tiny_config(V=3))
    model.tokenizer, draft.tokenizer = pieces_tokenizer(["a", "b", "c"]), pieces_tokenizer(["a", "c", "b"])
    with pytest.raises(RequestError, match="token id 1 is 'c' to the draft and 'b' to the target"):
        speculate(model, [1], DraftModel(draft))
    draft.tokenizer = pieces_tokenizer(["a", "b", "c"])
    assert len(speculate(model, [1], DraftModel(draft), max_new_tokens=3).completion.token_ids) == 3


def test_bad_settings_are_refused():
    model = tiny_model()
    with pytest.raises(RequestError, match="k counts guesses"):
        DraftModel(model, 0)
    with pytest.raises(RequestError, match="NoCache cannot take back"):
        DraftModel(model, cache=NoCache(model.config))
    for n in (0, 2):
        with pytest.raises(RequestError, match="1 <= n < 2"):
            first_layers(model, n)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_first_layers_are_the_targets_own(n):
    """Every weight shared; the logits are those of a model with the other layers taken out."""
    model = tiny_model(tiny_config(L=4, tied=True, sliding_window=3, windowed_layers=(True, False, True, False)))
    short = first_layers(model, n)
    assert {id(p) for p in short.parameters()} <= {id(p) for p in model.parameters()}
    assert short.config.windowed_layers == model.config.windowed_layers[:n]
    ids, cache = torch.tensor(random_ids(6)), ConcatCache(short.config)
    with torch.inference_mode(), cache.step({cache.add(): 6}) as view:
        got = short(ids, view)
    cache = ConcatCache(model.config, n_layers=n)
    with torch.inference_mode(), cache.step({cache.add(): 6}) as view:
        x_NM = model.embed(ids)
        for block in model.layers[:n]:
            x_NM = block(x_NM, view)
        wanted = model.logits(x_NM)
    assert torch.equal(got, wanted) and len(model.layers) == 4
