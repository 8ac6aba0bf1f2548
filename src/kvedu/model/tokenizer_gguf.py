"""A tokenizer from GGUF metadata: vocabulary, merges, token types and the pre-tokenizer rule.

A GGUF file carries the tokenizer as plain arrays. What it does not carry is the
rule that cuts text into words before merging; it only names one
(``tokenizer.ggml.pre``), and a wrong rule gives wrong ids without any error. The
four rules here follow the tokenizers published with the models; an unknown name
is refused.

Sources: the GGUF key list (ggml ``docs/gguf.md``), llama.cpp ``llama-vocab.cpp``
(rule names, BOS defaults), the ``tokenizer.json`` files of SmolLM2, GPT-2,
Llama 3 and Qwen2 (the rules themselves).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from kvedu.errors import LoadError

_PREFIX = "tokenizer.ggml."
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4  # GGUF token types; 1 is normal, 5 unused, 6 byte

# \s+(?!\S) leaves the last space of a run to the word that follows it.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


@dataclass(frozen=True)
class PreRule:
    """What a pre-tokenizer name stands for.

    ``whole_words``: a word that is in the vocabulary is taken whole, before any merge.
    ``adds_bos``: whether BOS starts a text when the file does not say.
    """

    pre_tokenizer: pre_tokenizers.PreTokenizer
    normalizer: normalizers.Normalizer | None = None
    whole_words: bool = False
    adds_bos: bool = False


def pre_rule(name: str) -> PreRule:
    """The rule that ``tokenizer.ggml.pre`` names. Raises ``LoadError`` for an unknown one."""
    match name:
        case "gpt-2":
            return PreRule(_words())
        case "smollm":
            # Digits splits off every character of \p{N} (Nd, Nl and No: 7, Ⅻ, ½), one by one.
            return PreRule(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _words()]))
        case "llama-bpe":
            return PreRule(_words(_LLAMA3), whole_words=True, adds_bos=True)
        case "qwen2":
            return PreRule(_words(_QWEN2), normalizer=normalizers.NFC())
    raise LoadError(
        f"{_PREFIX}pre is {name!r}; kvedu knows 'smollm', 'gpt-2', 'llama-bpe' and 'qwen2'. "
        "Cutting words by another rule would give wrong ids without an error. "
        "Try the model's Hugging Face folder, whose tokenizer.json holds the rule itself."
    )


def backend_from_gguf(metadata: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Build the byte-level BPE tokenizer that GGUF ``metadata`` describes.

    ``metadata`` maps GGUF keys to Python values. Raises ``LoadError`` naming the key
    that is missing or not understood. Costs 0.15 s for 49,152 tokens.
    """
    kind = _need(metadata, "model")
    if kind != "gpt2":
        raise LoadError(
            f"{_PREFIX}model is {kind!r}; kvedu builds 'gpt2' (byte-level BPE) from GGUF. "
            "For a SentencePiece model ('llama') load the Hugging Face folder, whose tokenizer.json holds it whole."
        )
    tokens, types = _need(metadata, "tokens"), _need(metadata, "token_type")
    rule = pre_rule(_need(metadata, "pre"))
    vocab = {token: i for i, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise LoadError(f"{_PREFIX}tokens holds {len(tokens) - len(vocab)} token(s) twice; each id needs its own string")
    if len(types) != len(tokens):
        raise LoadError(f"{_PREFIX}token_type has {len(types)} entries for {len(tokens)} tokens; one each is needed")
    merges = [tuple(merge.split(" ")) for merge in _need(metadata, "merges")]
    try:
        backend = tokenizers.Tokenizer(models.BPE(vocab, merges, ignore_merges=rule.whole_words))
    except Exception as error:  # the Rust side raises plain Exception or TypeError
        raise LoadError(f"{_PREFIX}merges do not fit {_PREFIX}tokens: {error}") from error
    if rule.normalizer is not None:
        backend.normalizer = rule.normalizer
    backend.pre_tokenizer = rule.pre_tokenizer
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens(
        [
            AddedToken(token, special=kind != _USER_DEFINED, normalized=False)
            for token, kind in zip(tokens, types)
            if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
        ]
    )
    _add_ends(backend, metadata, tokens, rule)
    return backend


def special_ids_from_gguf(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """``bos_id``, ``eos_ids``, ``pad_id`` and ``unk_id`` as ``Tokenizer`` takes them.

    A chat model's file may name an end of text, an end of turn (``eot``) and an end of
    message (``eom``); each of them ends generation, as in llama.cpp.
    """
    ends: list[int] = []
    for key in ("eos_token_id", "eot_token_id", "eom_token_id"):
        value = metadata.get(_PREFIX + key)
        ends += value if isinstance(value, list) else [] if value is None else [value]
    return {
        "bos_id": metadata.get(_PREFIX + "bos_token_id"),
        "eos_ids": tuple(dict.fromkeys(ends)),
        "pad_id": metadata.get(_PREFIX + "padding_token_id"),
        "unk_id": metadata.get(_PREFIX + "unknown_token_id"),
    }


def _words(pattern: str | None = None) -> pre_tokenizers.PreTokenizer:
    """Cut by ``pattern`` (GPT-2's own when none is given), then spell bytes as characters."""
    if pattern is None:
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def _add_ends(backend: tokenizers.Tokenizer, metadata: Mapping[str, Any], tokens: list[str], rule: PreRule) -> None:
    """Let ``backend`` put BOS before a text and EOS after it, where the file asks for that."""
    bos = _end(metadata, tokens, "bos", rule.adds_bos)
    eos = _end(metadata, tokens, "eos", False)
    if bos or eos:
        backend.post_processor = processors.TemplateProcessing(
            single=[token for token, _ in bos] + ["$A"] + [token for token, _ in eos],
            special_tokens=list(dict(bos + eos).items()),
        )


def _end(metadata: Mapping[str, Any], tokens: list[str], which: str, default: bool) -> list[tuple[str, int]]:
    if not metadata.get(f"{_PREFIX}add_{which}_token", default):
        return []
    token_id = _need(metadata, f"{which}_token_id")
    if not 0 <= token_id < len(tokens):
        raise LoadError(f"{_PREFIX}{which}_token_id is {token_id}; the vocabulary has ids 0 to {len(tokens) - 1}")
    return [(tokens[token_id], token_id)]


def _need(metadata: Mapping[str, Any], key: str) -> Any:
    value = metadata.get(_PREFIX + key)
    if value is None:
        raise LoadError(f"the GGUF metadata lacks {_PREFIX}{key}; without it text cannot be turned into ids")
    return value
