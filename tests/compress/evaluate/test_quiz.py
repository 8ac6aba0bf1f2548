"""Questions through a cache: right is what greedy decoding on that very cache would say."""

import pytest
import torch
from tiny import random_ids, tiny_config, tiny_model

from kvedu import ConcatCache, EvictingCache, WindowCache
from kvedu.caches.scores import key_norm
from kvedu.compress.evaluate.copying import copied, random_tokens
from kvedu.compress.evaluate.quiz import Ask, Quiz, accuracy, answer
from kvedu.errors import RequestError

CONTEXT = tuple(random_ids(23, seed=1))
CUES = [(5,), (7, 9, 11), (7, 9, 12, 13), (80, 3)]
MAKES = {
    "full": ConcatCache,
    "window": lambda config: WindowCache(config, window=9),
    "evicting": lambda config: EvictingCache(config, budget=9, score=key_norm),
}


@pytest.fixture(scope="module")
def model():
    return tiny_model(tiny_config())


@torch.inference_mode()
def spoken(model, make, steps, said):
    """Greedy tokens after ``steps`` (a list of steps' tokens), ``said`` of them, and the losses of what is then wanted."""
    cache = make(model.config)
    seq, out = cache.add(), []
    for ids in [*steps, *([None] * (said - 1))]:
        ids = ids or [out[-1]]
        with cache.step({seq: len(ids)}) as view:
            logits = model(torch.tensor(ids), view, view.last_rows)[0]
        if len(out) or ids is steps[-1]:
            out.append(int(logits.argmax()))
    return out


@torch.inference_mode()
def loss_of(model, make, steps, wanted):
    cache = make(model.config)
    seq, total = cache.add(), 0.0
    for ids in [*steps, *([token] for token in wanted[:-1])]:
        with cache.step({seq: len(ids)}) as view:
            logits = model(torch.tensor(ids), view, view.last_rows)[0]
        if ids is steps[-1] or total:
            total -= torch.log_softmax(logits, -1)[wanted[loss_of.place]].item()
            loss_of.place += 1
    return total


@pytest.mark.parametrize("aware", [False, True])
@pytest.mark.parametrize("name", MAKES)
def test_right_is_what_greedy_decoding_says(model, name, aware):
    make, asks, rights, losses = MAKES[name], [], [], []
    for i, cue in enumerate(CUES):
        steps = [[*CONTEXT, *cue]] if aware else [list(CONTEXT), list(cue)]
        said = spoken(model, make, steps, i + 1)
        wanted = tuple(said) if i % 2 else (*said[:-1], (said[-1] + 1) % 97)  # every other one misses at its last token
        asks.append(Ask(cue, wanted))
        rights.append(i % 2 == 1)
        loss_of.place = 0
        losses.append(loss_of(model, make, steps, wanted))
    (got,) = answer(model, [Quiz(CONTEXT, tuple(asks))], make, aware=aware)
    assert [a.right for a in got] == rights
    assert [a.loss for a in got] == pytest.approx(losses, rel=1e-3)
    assert accuracy([got]) == 0.5


def test_one_wrong_token_is_enough(model):
    """A first token that is missed, and then what greedy decoding would say after it."""
    first = (spoken(model, ConcatCache, [list(CONTEXT), [5]], 1)[0] + 1) % 97
    then = spoken(model, ConcatCache, [list(CONTEXT), [5, first]], 1)[0]
    ((got,),) = answer(model, [Quiz(CONTEXT, (Ask((5,), (first, then)),))], ConcatCache)
    assert not got.right
    ((got,),) = answer(model, [Quiz(CONTEXT, (Ask((5, first), (then,)),))], ConcatCache)
    assert got.right


def test_a_window_forgets_the_context(model):
    """The same cue after two contexts that differ before the window: a full cache answers differently, a narrow one cannot."""
    other = tuple(random_ids(3, seed=2)) + CONTEXT[3:]
    narrow = lambda config: WindowCache(config, window=4)  # noqa: E731
    for make, same in ((ConcatCache, False), (narrow, True)):
        (one,), (two,) = answer(model, [Quiz(c, (Ask((5, 6, 7, 8, 9), (1,)),)) for c in (CONTEXT, other)], make)
        assert (one.loss == pytest.approx(two.loss, rel=1e-5)) == same


def test_chunks_of_a_context_change_nothing_where_nothing_is_lost(model):
    quiz = Quiz(CONTEXT, (Ask((5, 6), (1, 2)),))
    losses = [answer(model, [quiz], ConcatCache, chunk=chunk, aware=aware)[0][0].loss for chunk in (None, 1, 4) for aware in (False, True)]
    assert losses == pytest.approx([losses[0]] * 6, rel=1e-4)


def test_sequences_are_given_back(model):
    caches = []

    def make(config):
        caches.append(ConcatCache(config))
        return caches[-1]

    quiz = Quiz(CONTEXT, (Ask((5,), (1, 2)), Ask((6,), (3,))))
    answer(model, [quiz, quiz], make), answer(model, [quiz], make, aware=True), copied(model, [CONTEXT], make)
    assert [cache.sequences for cache in caches] == [(), (), ()]


@torch.inference_mode()
def test_copying_by_hand(model):
    cache, text = WindowCache(model.config, window=9), list(CONTEXT)
    seq, rights, losses = cache.add(), [], []
    with cache.step({seq: len(text)}) as view:
        model.hidden(torch.tensor(text), view)
    for token, following in zip(text, text[1:]):
        with cache.step({seq: 1}) as view:
            logits = model(torch.tensor([token]), view)[0]
        rights.append(int(logits.argmax()) == following)
        losses.append(-torch.log_softmax(logits, -1)[following].item())
    for texts in ([text], [text, text]):
        got = copied(model, texts, MAKES["window"])
        assert got.accuracy == pytest.approx(sum(rights) / len(rights)) and got.loss == pytest.approx(sum(losses) / len(losses), rel=1e-4)


def test_random_tokens_are_different_and_seeded():
    ids = random_tokens(97, 90, lowest=3, seed=1)
    assert len(set(ids)) == 90 and min(ids) >= 3 and max(ids) < 97
    assert ids == random_tokens(97, 90, lowest=3, seed=1) != random_tokens(97, 90, lowest=3, seed=2)
    with pytest.raises(RequestError, match="94 ids to draw from"):
        random_tokens(97, 95, lowest=3)


def test_nothing_asked_is_refused(model):
    with pytest.raises(RequestError, match="no questions"):
        accuracy([])
    with pytest.raises(RequestError, match="too few"):
        answer(model, [Quiz((), (Ask((1,), (2,)),))], ConcatCache)
    with pytest.raises(RequestError, match="too few"):
        answer(model, [Quiz((1,), (Ask((1,), ()),))], ConcatCache)
    with pytest.raises(RequestError, match="no texts"):
        copied(model, [], ConcatCache)
