"""Haystacks, needles and batteries: every count and place by hand, on a tokenizer of words."""

import pytest
from tiny import tiny_config, tiny_model

from kvedu import ConcatCache, WindowCache
from kvedu.compress.evaluate.battery import battery, damages
from kvedu.compress.evaluate.haystack import haystack, sentences, source_lines
from kvedu.compress.evaluate.needles import THINGS, ask, fact, keys_quizzes, needle_quizzes
from kvedu.errors import RequestError

FILLER = [f"filler{i} a b c." for i in range(60)]  # four words each


class Words:
    """One id a word, in the order in which words first come."""

    def __init__(self):
        self.words = []

    def encode(self, text):
        return [self._id(word) for word in text.split()]

    def _id(self, word):
        if word not in self.words:
            self.words.append(word)
        return self.words.index(word)


@pytest.fixture
def words():
    return Words()


def test_filler_is_every_machines(words):
    found = sentences()
    assert len(found) > 300 and all(s[-1] in ".!?" and "\n" not in s for s in found)
    assert any("def " in line for line in source_lines("textwrap")) and all(line.strip() for line in source_lines("textwrap"))


@pytest.mark.parametrize("length", [6, 7, 40, 41, 200])
@pytest.mark.parametrize("depth", [0, 0.25, 0.5, 1])
def test_a_needle_stands_where_it_should(words, length, depth):
    needle = words.encode("NEEDLE one two three")
    ids = list(haystack(words.encode, length, [(depth, "NEEDLE one two three")], filler=FILLER))
    assert len(ids) == length
    place = ids.index(needle[0])
    assert ids[place : place + 4] == needle and words.words.count("NEEDLE") == 1
    room = length - 4
    sentences_before = -(-depth * room // 4)  # the first whole sentence at or after the depth
    assert place == min(4 * sentences_before, room) if depth < 1 else place == room
    rest = ids[:place] + ids[place + 4 :]
    assert all(words.words[i].startswith("filler") for i in rest[::4])


def test_order_comes_from_the_seed(words):
    one, again, other = (haystack(words.encode, 100, filler=FILLER, seed=seed) for seed in (1, 1, 2))
    assert one == again != other
    assert len(set(one)) == 28  # 25 sentences, all different


@pytest.mark.parametrize(
    "length, needles, says",
    [(241, [], "240 tokens, and 241"), (3, [(0, "a b c d")], "take 4 tokens"), (9, [(1.5, "a")], "between 0"), (9, [(-0.1, "a")], "between 0")],
)
def test_what_does_not_fit_is_refused(words, length, needles, says):
    with pytest.raises(RequestError, match=says):
        haystack(words.encode, length, needles, filler=FILLER)


def test_needles_fill_the_grid(words):
    quizzes = needle_quizzes(words.encode, (50, 90), (0, 0.5, 1), n=2, filler=FILLER, seed=3)
    assert [(q.length, q.depth) for q in quizzes] == [(n, d) for n in (50, 90) for d in (0, 0, 0.5, 0.5, 1, 1)]
    for quiz in quizzes:
        (one,) = quiz.asks
        said, code = (" ".join(words.words[i] for i in ids) for ids in one)
        needle = words.encode(f"{said} {code}.")
        assert said.startswith("The secret code of the ") and said.split()[5] in THINGS and code.isdigit() and len(code) == 4
        starts = [i for i in range(quiz.length) if list(quiz.context[i : i + len(needle)]) == needle]
        assert len(starts) == 1 and abs(starts[0] - quiz.depth * (quiz.length - len(needle))) < 4
    assert quizzes == needle_quizzes(words.encode, (50, 90), (0, 0.5, 1), n=2, filler=FILLER, seed=3)
    assert len({q.asks[0].answer for q in quizzes}) == 12


def test_keys_are_all_there_and_some_are_asked(words):
    for length in (None, 200):
        (quiz,) = keys_quizzes(words.encode, 10, 4, length=length, filler=FILLER)
        text = [words.words[i] for i in quiz.context]
        assert quiz.length == (length or 80) and text.count("secret") == 10 and len(quiz.asks) == 4
        assert len(set(quiz.asks)) == 4
        for one in quiz.asks:
            said, code = (" ".join(words.words[i] for i in ids) for ids in one)
            assert f"{said} {code}." in " ".join(text)
    assert ask(words.encode, "tower", "4817").cue == tuple(words.encode(fact("tower", "4817"))[:-1])
    for keys, asked in ((33, 4), (4, 5), (4, 0)):
        with pytest.raises(RequestError, match="keys"):
            keys_quizzes(words.encode, keys, asked, filler=FILLER)


class Small:
    """Words' ids within a tiny vocabulary."""

    def encode(self, text):
        return [sum(map(ord, word)) % 97 for word in text.split()]


def test_a_battery_is_of_one_length_and_the_full_cache_loses_nothing(monkeypatch):
    monkeypatch.setattr("kvedu.compress.evaluate.battery.ORDINARY", 3)
    monkeypatch.setattr("kvedu.compress.evaluate.battery.keys_quizzes", lambda *a, **k: keys_quizzes(*a, 4, 2, **k))
    model = tiny_model(tiny_config())
    with pytest.raises(RequestError, match="no tokenizer"):
        battery(model)
    model.tokenizer = Small()
    tasks = battery(model, 64, n=1)
    assert len(tasks.prose) == 96 and {q.length for q in (*tasks.needles, *tasks.keys)} == {64} == {len(x) for x in (*tasks.natural, *tasks.random)}
    found = dict(damages(model, tasks, {"full": ConcatCache, "narrow": lambda config: WindowCache(config, window=16)}))
    assert found["full"].kl == 0 < found["narrow"].kl
    assert found["full"].perplexity != found["narrow"].perplexity
