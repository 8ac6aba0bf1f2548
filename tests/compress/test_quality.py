"""Perplexity and recall against the slow truth: one token at a time, a loop that generates."""

import math
from dataclasses import dataclass

import pytest
import torch
from tiny import random_ids, tiny_config, tiny_model

from kvedu.caches.none import NoCache
from kvedu.compress.perplexity import perplexity, token_losses
from kvedu.compress.recall import recall_accuracy, score_answers
from kvedu.errors import RequestError
from kvedu.model.loops import greedy_uncached


@pytest.fixture
def model():
    return tiny_model(tiny_config())


def log_probability(model, context, token):
    cache = NoCache(model.config)
    with torch.inference_mode(), cache.step({cache.add(): len(context)}) as view:
        return torch.log_softmax(model(torch.tensor(context), view, view.last_rows)[0], -1)[token].item()


@pytest.mark.parametrize("n, window, stride", [(30, 8, 4), (30, 8, 7), (31, 8, 1), (8, 8, 4), (9, 8, 4), (2, 8, 4), (5, 2, 1)])
def test_each_token_is_scored_once_with_the_context_promised(model, n, window, stride):
    ids = random_ids(n)
    wanted, start = [], 0
    for i in range(1, n):
        while i >= start + window:  # the first window that holds token i
            start += stride
        assert i - start >= min(i, window - stride)
        wanted.append(-log_probability(model, ids[start:i], ids[i]))
    torch.testing.assert_close(token_losses(model, ids, window, stride), torch.tensor(wanted), rtol=1e-4, atol=1e-5)
    assert perplexity(model, ids, window, stride) == pytest.approx(math.exp(sum(wanted) / len(wanted)), rel=1e-4)


def test_a_model_that_knows_nothing_has_the_vocabulary_as_perplexity(model):
    with torch.no_grad():
        model.head.weight.zero_()
    assert perplexity(model, random_ids(40), 16, 8) == pytest.approx(97)


@pytest.mark.parametrize(
    "ids, window, stride, says",
    [([5], 8, 4, "at least 2"), ([5, 6], 8, 8, "stride"), ([5, 6], 8, 0, "stride"), ([5, 97], 8, 4, "0 .. 96"), ([-1, 5], 8, 4, "0 .. 96")],
)
def test_bad_texts_and_windows_are_refused(model, ids, window, stride, says):
    with pytest.raises(RequestError, match=says):
        token_losses(model, ids, window, stride)


@dataclass(frozen=True)
class Item:
    prompt: str
    answer: str


class Letters:
    """Two letters a token, so that questions have different lengths and answers several tokens."""

    def encode(self, text):
        return [(ord(a) * 7 + ord(b)) % 97 for a, b in zip(text[::2], text[1::2] + " ")]


CONTEXT = "a long passage that several of the questions have in common, and then "
QUESTIONS = {
    "alone": ["what is it", "where", "a longer question about it", "who", "when was that then"],
    "shared": [CONTEXT + "what", CONTEXT + "where is it", "who", "whom", CONTEXT + "why", CONTEXT + "why"],
    "one inside another": [CONTEXT, CONTEXT + "what", CONTEXT + "what now"],
}


@pytest.mark.parametrize("kind", QUESTIONS)
def test_right_is_what_greedy_decoding_would_say(model, kind):
    model.tokenizer = Letters()
    items, rights, losses = [], [], []
    for i, question in enumerate(QUESTIONS[kind]):
        said = greedy_uncached(model, model.tokenizer.encode(question), 2)
        answer = next((t for t in pairs() if model.tokenizer.encode(f" {t}") == said), None) if i % 2 else f"ab{i}"
        items.append(Item(question, answer or "zz9"))
        context, loss = model.tokenizer.encode(question), 0.0
        wanted = model.tokenizer.encode(f" {items[-1].answer}")
        for token in wanted:
            loss -= log_probability(model, context, token)
            context = [*context, token]
        rights.append(greedy_uncached(model, model.tokenizer.encode(question), len(wanted)) == wanted)
        losses.append(loss)
    assert any(rights) and not all(rights)
    answers = score_answers(model, items)
    assert [answer.right for answer in answers] == rights
    assert [answer.loss for answer in answers] == pytest.approx(losses, rel=1e-4)
    assert recall_accuracy(model, items) == sum(rights) / len(rights)


def pairs():
    """Three-letter answers: with the space before them, two tokens."""
    letters = [chr(i) for i in range(33, 127)]
    return (f"{a}{b}{c}" for a in letters for b in letters for c in letters)


def test_recall_needs_a_tokenizer_and_questions(model):
    with pytest.raises(RequestError, match="no tokenizer"):
        score_answers(model, [Item("a", "b")])
    model.tokenizer = Letters()
    with pytest.raises(RequestError, match="no questions"):
        recall_accuracy(model, [])
    with pytest.raises(RequestError, match="without a prompt"):
        score_answers(model, [Item("", "b")])
