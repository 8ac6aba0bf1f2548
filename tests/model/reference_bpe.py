"""Byte-level BPE with the ``smollm`` rule, written straight from its definition: slow and plain.

Shares nothing with the library but the vocabulary: words are cut by the ``regex``
package, bytes are spelled by GPT-2's table, pairs are merged by rank one at a time.
"""

import functools

import regex

_SPECIAL_TYPES = (2, 3)
_NUMBER = regex.compile(r"\p{N}")
_WORD = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


class ReferenceBPE:
    """``encode(text, special)`` by the rule: split off each number character, cut words, merge bytes."""

    def __init__(self, metadata):
        tokens = metadata["tokenizer.ggml.tokens"]
        self.id_of = {token: i for i, token in enumerate(tokens)}
        self.rank = {tuple(m.split(" ")): r for r, m in enumerate(metadata["tokenizer.ggml.merges"])}
        types = metadata["tokenizer.ggml.token_type"]
        self.special = [t for t, kind in zip(tokens, types) if kind in _SPECIAL_TYPES]
        self.word_ids = functools.cache(self._word_ids)

    def encode(self, text, special):
        if not special:
            return self._plain(text)
        ids = []
        for part in regex.split("(" + "|".join(map(regex.escape, self.special)) + ")", text):
            ids += [self.id_of[part]] if part in self.special else self._plain(part)
        return ids

    def _plain(self, text):
        return [i for word in self.words(text) for i in self.word_ids(word)]

    @staticmethod
    def words(text):
        start = 0
        for number in _NUMBER.finditer(text):
            yield from _WORD.findall(text[start : number.start()])
            yield number.group()
            start = number.end()
        yield from _WORD.findall(text[start:])

    def _word_ids(self, word):
        pieces = [spell(byte) for byte in word.encode()]
        pieces = [p for p in pieces if p in self.id_of]  # a byte without a token is dropped
        while True:
            pairs = [(self.rank[p], i) for i, p in enumerate(zip(pieces, pieces[1:])) if p in self.rank]
            if not pairs:
                return [self.id_of[p] for p in pieces]
            _, i = min(pairs)
            pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]


@functools.cache
def spell(byte):
    """GPT-2's printable character for a byte."""
    printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    return chr(byte) if byte in printable else chr(256 + [b for b in range(256) if b not in printable].index(byte))
