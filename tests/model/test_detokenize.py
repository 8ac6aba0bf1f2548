"""Streaming text: the joined stream is the whole text, no character is cut, no stop string leaks."""

import functools
import time

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers

import smollm_tokenizer
from kvedu.errors import RequestError
from kvedu.model.detokenize import Detokenizer
from kvedu.model.stop_strings import StopStrings
from kvedu.model.token_text import text_rule
from kvedu.model.tokenizer import Tokenizer

SPECIAL = AddedToken("<|end|>", special=True, normalized=False)
WORD = AddedToken("<tool é>", special=False, normalized=False)


def small(pieces, decoder, added=(SPECIAL, WORD)):
    """A tokenizer whose vocabulary is just ``pieces``, spelled as the vocabulary spells them, then the added ones."""
    backend = tokenizers.Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, []))
    backend.decoder = decoder
    backend.add_tokens(list(added))
    return Tokenizer(backend)


def run(tokenizer, ids, **options):
    """Pushes, finish and the detokenizer."""
    stream = Detokenizer(tokenizer, **options)
    pushed = [stream.push(i) for i in ids]
    return pushed, stream.finish(), stream


def spelled(*texts):
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return ["".join(piece for piece, _ in byte_level.pre_tokenize_str(text)) for text in texts]


LETTERS = ["▁", "▁I", "▁am", "am", "▁a", "a▁b", "▁▁", "é"]
BYTES = [f"<0x{b:02X}>" for b in (0xE4, 0xBD, 0xA0, 0x41, 0xFF, 0x20)]


@functools.cache
def kinds():
    """One tokenizer of each kind that the library streams."""
    metaspace = {scheme: small(LETTERS, decoders.Metaspace(prepend_scheme=scheme)) for scheme in ("always", "first", "never")}
    fallback = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return {
        "byte level": smollm_tokenizer.tokenizer(),
        "byte level, every byte": small(sorted(pre_tokenizers.ByteLevel.alphabet()), decoders.ByteLevel()),
        **{f"metaspace {scheme}": tokenizer for scheme, tokenizer in metaspace.items()},
        "byte fallback": small(LETTERS + BYTES, decoders.Sequence([*fallback, decoders.Strip(" ", 1, 0)])),
        "byte fallback, two spaces": small(LETTERS + BYTES, decoders.Sequence([*fallback, decoders.Strip(" ", 2, 0)])),
        "byte fallback, kept": small(LETTERS + BYTES, decoders.Sequence(fallback)),
    }


NAMES = [
    "byte level", "byte level, every byte", "metaspace always", "metaspace first", "metaspace never",
    "byte fallback", "byte fallback, two spaces", "byte fallback, kept",
]


@pytest.mark.parametrize("name", NAMES)
def test_joined_stream_is_the_whole_decode(name):
    """C089: for every kind, with and without special tokens, whatever the ids; also C010's text side: ids decide, not pad = EOS."""
    tokenizer = kinds()[name]

    @settings(max_examples=300, deadline=None)
    @given(st.lists(st.integers(0, tokenizer.vocab_size) | st.sampled_from(sorted(tokenizer.special_ids)), max_size=30), st.booleans())
    def law(ids, skip):
        pushed, rest, stream = run(tokenizer, ids, skip_special=skip)
        assert "".join(pushed) + rest == tokenizer.decode(ids, skip_special=skip) == stream.text
        assert tokenizer.backend.decode(ids, skip_special_tokens=skip) == stream.text

    law()


def test_law_holds_for_bytes_that_are_nearly_utf8():
    """Half characters, overlong forms, surrogates, bytes above F4: U+FFFD exactly as often as the full decode says."""
    tokenizer = kinds()["byte level, every byte"]
    id_of = {tokenizer.token_bytes(i)[0]: i for i in range(256)}
    assert len(id_of) == 256
    lead = st.sampled_from([0xC0, 0xC3, 0xE0, 0xE4, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF])
    byte = lead | st.sampled_from([0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBD, 0xBF, 0x41])

    @settings(max_examples=300, deadline=None)
    @given(st.lists(byte, max_size=14))
    def law(data):
        pushed, rest, _ = run(tokenizer, [id_of[b] for b in data])
        assert "".join(pushed) + rest == tokenizer.decode([id_of[b] for b in data])

    law()


def test_metaspace_spaces():
    """C089: pieces for ' I', ' am', ' ', ' a' keep their spaces, but for the very first one."""
    tokenizer = kinds()["metaspace always"]
    ids = [LETTERS.index(p) for p in ("▁I", "▁am", "▁", "▁a")]
    assert run(tokenizer, ids)[0] == ["I", " am", " ", " a"]
    end = tokenizer.backend.token_to_id("<|end|>")
    assert run(tokenizer, [end, *ids])[0] == ["", "I", " am", " ", " a"]
    assert run(tokenizer, [ids[0], end, *ids[1:]], skip_special=False)[0] == ["I", "<|end|>", " am", " ", " a"]
    assert run(tokenizer, [end, *ids], skip_special=False)[0] == ["<|end|>", " I", " am", " ", " a"]


def test_byte_level_spaces():
    """C089: a byte-level piece keeps its leading space from the first token on; a hidden special token changes nothing."""
    tokenizer = smollm_tokenizer.tokenizer()
    ids = tokenizer.encode(" I am  here")
    assert "".join(run(tokenizer, ids)[0]) == " I am  here" and run(tokenizer, ids)[0][0].startswith(" ")
    middle = [*ids[:2], 2, *ids[2:]]
    assert "".join(run(tokenizer, middle)[0]) == " I am  here"
    assert "<|im_end|>" in "".join(run(tokenizer, middle, skip_special=False)[0])


def test_no_character_is_cut():
    tokenizer = smollm_tokenizer.tokenizer()
    text = "naïve 🙂 𠮷野家 Ⅻ 👨‍👩‍👧‍👦 한"
    ids = tokenizer.encode(text)
    pushed, rest, _ = run(tokenizer, ids)
    assert "".join(pushed) == text and rest == "" and "\ufffd" not in "".join(pushed)
    assert any(piece == "" for piece in pushed)  # some token ended inside a character and was held
    pushed, rest, _ = run(tokenizer, ids[:-1])
    assert "".join(pushed) == text[:-1] and rest == "\ufffd" == tokenizer.decode(ids[:-1])[-1]


def test_byte_fallback_waits_for_the_run():
    tokenizer = kinds()["byte fallback"]
    ids = [tokenizer.backend.token_to_id(p) for p in ("▁I", "<0xE4>", "<0xBD>", "<0xA0>", "▁a", "<0xE4>", "<0x41>")]
    assert run(tokenizer, ids)[:2] == (["I", "", "", "", "你 a", "", ""], "\ufffd\ufffd")


def text_tokenizer(*pieces):
    return small(spelled(*pieces), decoders.ByteLevel(), added=(SPECIAL,))


def test_stop_across_tokens():
    """C087: pieces DEF, G, HI, J with stop DEFGHIJ: nothing is sent."""
    pushed, rest, stream = run(text_tokenizer("DEF", "G", "HI", "J"), [0, 1, 2, 3], stop=["DEFGHIJ"])
    assert (pushed, rest, stream.stopped, stream.text) == (["", "", "", ""], "", "DEFGHIJ", "")


def test_false_alarm():
    """C087: DEF, G, X is sent in full once X shows that it was none."""
    pushed, rest, stream = run(text_tokenizer("DEF", "G", "X"), [0, 1, 2], stop=["DEFGHIJ"])
    assert (pushed, rest, stream.stopped) == (["", "", "DEFGX"], "", None)


def test_stop_inside_one_token_drops_the_tail():
    """C087: one piece that holds quote-comma-quote, stop quote-comma."""
    tokenizer = text_tokenizer('"hi', '","', "more")
    pushed, rest, stream = run(tokenizer, [0, 1, 2], stop=['",'])
    assert (pushed, rest, stream.stopped, stream.text) == (['"hi', "", ""], "", '",', '"hi')


def test_held_text_is_flushed_at_the_length_end():
    """C087: generation ends by length while a stop string is half there."""
    pushed, rest, stream = run(text_tokenizer("ab", "DE"), [0, 1], stop=["DEF"])
    assert (pushed, rest, stream.stopped, stream.text) == (["ab", ""], "DE", None, "abDE")


@pytest.mark.parametrize("stops", [["DE", "DEFG"], ["DEFG", "DE"]])
@pytest.mark.parametrize("pieces", [["abDEFGh"], ["ab", "D", "E", "F", "G", "h"], ["abDEF", "Gh"]])
def test_one_stop_is_the_prefix_of_the_other(stops, pieces):
    """C087: both start at the same place; the shorter one is complete first and counts."""
    _, _, stream = run(text_tokenizer(*pieces), range(len(pieces)), stop=stops)
    assert (stream.text, stream.stopped) == ("ab", "DE")


@pytest.mark.parametrize("pieces", [["xabcd!"], ["xa", "bc", "d!"], ["x", "a", "b", "c", "d", "!"]])
def test_the_stop_that_starts_first_wins(pieces):
    """"bc" is complete first, but "abcd" starts first: the pieces make no difference."""
    _, _, stream = run(text_tokenizer(*pieces), range(len(pieces)), stop=["bc", "abcd"])
    assert (stream.text, stream.stopped) == ("x", "abcd")


@pytest.mark.parametrize("pieces", [["xabcX"], ["xab", "cX"], ["x", "a", "b", "c", "X"], ["x", "ab", "c"]])
def test_a_waiting_stop_counts_when_the_longer_one_fails(pieces):
    _, _, stream = run(text_tokenizer(*pieces), range(len(pieces)), stop=["bc", "abcd"])
    assert (stream.text, stream.stopped) == ("xa", "bc")


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.text("ab c", max_size=4), max_size=8),
    st.lists(st.text("ab c", min_size=1, max_size=5), min_size=1, max_size=3),
)
def test_stop_law(pieces, stops):
    """The result is a plain search of the whole text: first start, then shortest; and no shown text is ever taken back."""
    text = "".join(pieces)
    places = [(text.find(s), len(s), s) for s in stops if s in text]
    start, _, stop = min(places, default=(len(text), 0, None))
    matcher, shown = StopStrings(stops), ""
    for piece in pieces:
        shown += matcher.push(piece)
        assert text[:start].startswith(shown)
    assert shown + matcher.flush() == text[:start] and matcher.stopped == stop


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text("ab", min_size=1, max_size=3), max_size=8), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=2))
def test_only_what_may_become_a_stop_is_held(pieces, stops):
    matcher, shown, text = StopStrings(stops), "", ""
    for piece in pieces:
        shown, text = shown + matcher.push(piece), text + piece
        held = text[len(shown) :]
        if matcher.stopped is None:
            assert not held or any(s.startswith(held) for s in stops)


def test_stop_strings_see_the_shown_text_only():
    tokenizer = smollm_tokenizer.tokenizer()
    ids = [*tokenizer.encode("a"), 2, *tokenizer.encode("b")]
    assert run(tokenizer, ids, stop=["<|im_end|>"])[2].text == "ab"
    _, _, shown = run(tokenizer, ids, stop="<|im_end|>", skip_special=False)  # one string will do
    assert (shown.text, shown.stopped) == ("a", "<|im_end|>")


@pytest.mark.parametrize("stop", ["", [""], ["a", ""], [None], [3]])
def test_empty_stop_is_refused(stop):
    with pytest.raises(RequestError, match="at least one character"):
        Detokenizer(smollm_tokenizer.tokenizer(), stop=stop)


def test_after_the_end():
    tokenizer = text_tokenizer("ab", "STOP")
    stream = Detokenizer(tokenizer, stop=["STOP"])
    assert [stream.push(i) for i in (0, 1, 0, 0)] == ["ab", "", "", ""]
    assert (stream.finish(), stream.finish(), stream.text) == ("", "", "ab")
    with pytest.raises(RequestError, match="after finish"):
        stream.push(0)
    with pytest.raises(RequestError, match="negative"):
        Detokenizer(tokenizer).push(-1)


def test_cost_does_not_grow_with_the_text():
    """Ten times the tokens take about ten times the time, not a hundred; a long stop string changes nothing."""
    tokenizer = smollm_tokenizer.tokenizer()

    def seconds(n, stop):
        best = 9.0
        for _ in range(3):
            stream = Detokenizer(tokenizer, stop=stop)
            started = time.perf_counter()
            for i in range(n):
                stream.push(1000 + i % 40000)
            best = min(best, time.perf_counter() - started)
        return best

    assert seconds(20_000, ()) < 30 * seconds(2_000, ())
    assert seconds(20_000, ["a" * 20_000, "\n\nUser:"]) < 30 * seconds(2_000, ["a" * 20_000, "\n\nUser:"])


def test_token_bytes_of_each_kind():
    fallback = kinds()["byte fallback"]
    assert fallback.token_bytes(LETTERS.index("▁am")) == b" am" and fallback.token_bytes(len(LETTERS)) == b"\xe4"
    assert fallback.token_bytes(fallback.backend.token_to_id("<tool é>")) == "<tool é>".encode()
    assert kinds()["metaspace first"].token_bytes(LETTERS.index("a▁b")) == b"a b"
    assert text_rule(decoders.Sequence([decoders.ByteLevel()])).token_bytes("Ġa") == b" a"
