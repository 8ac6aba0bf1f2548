"""How token strings become text: one rule per kind of tokenizer, whole or token by token.

A vocabulary spells its tokens in a code of its own: byte-level BPE writes each byte
as a printable character, SentencePiece writes a space as ``▁`` and a rare byte as
``<0xE2>``. Tokens are therefore not text: one may end in the middle of a character,
and a leading space may belong to the text or not. A stream object here turns tokens
into text one at a time and gives, joined, what decoding all of them at once gives.

Source: the decoders of Hugging Face ``tokenizers``, whose results these equal.
"""

from __future__ import annotations

import codecs
import json
from typing import Protocol

from tokenizers.decoders import Decoder

from kvedu.errors import LoadError


class TextStream(Protocol):
    """Text of a growing list of tokens."""

    def push(self, token: str) -> str:
        """Add a token; return the text that no later token can change."""

    def flush(self) -> str:
        """End the list; return the text still held."""


class TextRule(Protocol):
    """One kind of tokenizer's spelling."""

    def token_bytes(self, token: str) -> bytes:
        """The bytes a token stands for inside a text (not at its start)."""

    def stream(self) -> TextStream:
        """A new stream over an empty list of tokens."""


def text_rule(decoder: Decoder | None) -> TextRule:
    """The rule of a ``tokenizers`` decoder. Raises ``LoadError`` for a kind that is not implemented."""
    spec = json.loads(decoder.__getstate__()) if decoder is not None else {"type": None}
    steps = spec["decoders"] if spec["type"] == "Sequence" else [spec]
    match [step["type"] for step in steps]:
        case ["ByteLevel"]:
            return ByteLevelText()
        case ["Metaspace"]:
            return MetaspaceText(steps[0]["replacement"], drops_first=steps[0]["prepend_scheme"] != "never")
        case ["Replace", "ByteFallback", "Fuse", *rest] if rest in ([], ["Strip"]):
            if steps[0]["pattern"] == {"String": "▁"} and steps[0]["content"] == " ":
                strip = steps[3] if rest else {"content": " ", "start": 0, "stop": 0}
                if strip["content"] == " " and strip["stop"] == 0:
                    return ByteFallbackText(strip["start"])
    raise LoadError(
        f"the tokenizer's decoder is {json.dumps(spec)[:200]}; kvedu streams the ByteLevel, Metaspace and "
        "Replace-ByteFallback-Fuse(-Strip) kinds, which Llama, Mistral, Qwen and SmolLM models use"
    )


def _byte_of_char() -> dict[str, int]:
    """GPT-2's table: printable Latin-1 bytes stand for themselves, the others for U+0100 upwards."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    other = [b for b in range(256) if b not in set(plain)]
    return {chr(b): b for b in plain} | {chr(0x100 + i): b for i, b in enumerate(other)}


class ByteLevelText:
    """Byte-level BPE: the text is the UTF-8 of all tokens' bytes, U+FFFD where they are not UTF-8."""

    def __init__(self) -> None:
        self._byte_of = _byte_of_char()

    def token_bytes(self, token: str) -> bytes:
        try:
            return bytes([self._byte_of[char] for char in token])
        except KeyError:  # an added token, spelled as plain text
            return token.encode()

    def stream(self) -> TextStream:
        return _ByteLevelStream(self)


class _ByteLevelStream:
    def __init__(self, rule: ByteLevelText) -> None:
        self._rule = rule
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: str) -> str:
        return self._utf8.decode(self._rule.token_bytes(token))

    def flush(self) -> str:
        return self._utf8.decode(b"", final=True)


class MetaspaceText:
    """SentencePiece words: ``▁`` is a space, except (``drops_first``) in the first token of a text."""

    def __init__(self, mark: str, drops_first: bool) -> None:
        self.mark, self.drops_first = mark, drops_first

    def token_bytes(self, token: str) -> bytes:
        return token.replace(self.mark, " ").encode()

    def stream(self) -> TextStream:
        return _MetaspaceStream(self)


class _MetaspaceStream:
    def __init__(self, rule: MetaspaceText) -> None:
        self._mark = rule.mark
        self._space = "" if rule.drops_first else " "

    def push(self, token: str) -> str:
        text = token.replace(self._mark, self._space)
        self._space = " "
        return text

    def flush(self) -> str:
        return ""


class ByteFallbackText:
    """SentencePiece with byte tokens: ``▁`` is a space, ``<0xE2>`` a byte; ``strip`` spaces fall off the start."""

    def __init__(self, strip: int) -> None:
        self.strip = strip

    def token_bytes(self, token: str) -> bytes:
        byte = _fallback_byte(token)
        return token.replace("▁", " ").encode() if byte is None else bytes([byte])

    def stream(self) -> TextStream:
        return _ByteFallbackStream(self)


class _ByteFallbackStream:
    """Holds a run of byte tokens until it ends: one bad byte turns each byte of its run into U+FFFD."""

    def __init__(self, rule: ByteFallbackText) -> None:
        self._strip = rule.strip
        self._run = bytearray()

    def push(self, token: str) -> str:
        byte = _fallback_byte(token)
        if byte is not None:
            self._run.append(byte)
            return ""
        return self._end_run() + self._trim(token.replace("▁", " "))

    def flush(self) -> str:
        return self._end_run()

    def _end_run(self) -> str:
        try:
            text = self._run.decode()
        except UnicodeDecodeError:
            text = "\ufffd" * len(self._run)
        self._run.clear()
        return self._trim(text)

    def _trim(self, text: str) -> str:
        """Take leading spaces of the whole text away, until ``strip`` are gone or a letter came."""
        while text and self._strip:
            if text[0] != " ":
                self._strip = 0
                break
            text, self._strip = text[1:], self._strip - 1
        return text


def _fallback_byte(token: str) -> int | None:
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return int(token[3:5], 16)
        except ValueError:
            return None
    return None
