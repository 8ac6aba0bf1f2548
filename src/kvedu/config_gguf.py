"""A model configuration from the metadata of a GGUF file.

Strict: every key under the architecture's name is read, neutral, or named in an
error. Source: the GGUF key list (ggml ``docs/gguf.md``) and llama.cpp's readers.
"""

from __future__ import annotations

import math
from typing import Any, Mapping, Sequence

from kvedu.config import ModelConfig
from kvedu.config_hf import id_tuple
from kvedu.errors import ConfigError
from kvedu.rope_config import RopeConfig

ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""Mistral and SmolLM files say ``llama``: they are the same architecture there."""

_READ = {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
    "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "rope.dimension_count", "rope.freq_base", "rope.scale_linear", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.original_context_length", "rope.scaling.attn_factor", "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow", "rope.scaling.finetuned",
}
_ROPE_KINDS = {"none": "default", "linear": "linear", "yarn": "yarn"}


def config_from_gguf(
    metadata: Mapping[str, Any],
    *,
    tied: bool,
    qkv_bias: bool = False,
    rope_factors: Sequence[float] | None = None,
) -> ModelConfig:
    """Read GGUF metadata (a dictionary of key to Python value).

    Three facts come from the tensor list: whether ``output.weight`` is absent
    (``tied``), whether ``blk.0.attn_q.bias`` is present, and the numbers of
    ``rope_freqs.weight``, one per rotated pair, if there is one.
    Raises ``ConfigError`` for an unknown architecture, a missing or an unread key.
    """
    family = metadata.get("general.architecture")
    if family not in ARCHITECTURES:
        raise ConfigError(f"general.architecture {family!r} is not one kvedu reads: {', '.join(ARCHITECTURES)}")
    keys = {key.removeprefix(f"{family}."): value for key, value in metadata.items() if key.startswith(f"{family}.")}
    unread = sorted(key for key in keys.keys() - _READ if keys[key])  # 0, "" and false say nothing
    if unread:
        raise ConfigError(f"GGUF keys not understood: {', '.join(f'{family}.{key}' for key in unread)}")

    def need(key: str) -> int:
        if keys.get(key) is None:
            raise ConfigError(f"GGUF metadata lacks {family}.{key}")
        if isinstance(keys[key], (list, tuple)):
            raise ConfigError(f"{family}.{key} differs by layer; kvedu has one value for all layers")
        return keys[key]

    heads, width = need("attention.head_count"), need("embedding_length")
    head_dim = keys.get("attention.key_length") or width // heads
    if (keys.get("attention.value_length") or head_dim) != head_dim:
        raise ConfigError(f"{family}.attention.value_length differs from key_length; kvedu's heads have one size")
    max_positions = need("context_length")
    rope = _rope(keys, family, head_dim, max_positions)
    return ModelConfig(
        family=family,
        n_layers=need("block_count"),
        width=width,
        n_heads=heads,
        n_kv_heads=heads if keys.get("attention.head_count_kv") is None else need("attention.head_count_kv"),
        head_dim=head_dim,
        mlp_width=need("feed_forward_length"),
        vocab_size=keys.get("vocab_size") or len(metadata.get("tokenizer.ggml.tokens") or ()),
        max_positions=max_positions,
        rope=rope if rope_factors is None else _with_factors(rope, rope_factors),
        norm_eps=_as_written(keys.get("attention.layer_norm_rms_epsilon") or 1e-5),
        tied=tied,
        qkv_bias=qkv_bias,
        qk_norm=family == "qwen3",
        bos_id=metadata.get("tokenizer.ggml.bos_token_id"),
        eos_ids=_eos_ids(metadata),
        pad_id=metadata.get("tokenizer.ggml.padding_token_id"),
    )


def _eos_ids(metadata: Mapping[str, Any]) -> tuple[int, ...]:
    """End of sequence, of turn and of message: each ends a generation."""
    named = (metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom"))
    return id_tuple([value for value in named if value is not None])


def _rope(keys: Mapping[str, Any], family: str, head_dim: int, max_positions: int) -> RopeConfig:
    rotated = int(keys.get("rope.dimension_count") or head_dim)
    if family == "llama" and rotated != head_dim:
        raise ConfigError(
            f"{family}.rope.dimension_count {rotated} is not the head size {head_dim}: the row order of Q and K "
            "in such a file is not defined; load the safetensors checkpoint instead"
        )
    kind = keys.get("rope.scaling.type") or "none"
    factor = float(keys.get("rope.scaling.factor") or 1.0)
    if not keys.get("rope.scaling.type") and (keys.get("rope.scale_linear") or 1.0) != 1.0:
        kind, factor = "linear", float(keys["rope.scale_linear"])  # the old spelling
    if kind not in _ROPE_KINDS:
        raise ConfigError(f"{family}.rope.scaling.type {kind!r} is not one kvedu reads: {', '.join(_ROPE_KINDS)}")
    # llama.cpp multiplies YaRN's own magnitude by attn_factor; attention_factor here is the product.
    attn_factor = keys.get("rope.scaling.attn_factor")
    magnitude = attn_factor * (1 + 0.1 * math.log(max(factor, 1.0))) if attn_factor and kind == "yarn" else None
    return RopeConfig(
        dim=rotated,
        theta=_as_written(keys.get("rope.freq_base") or 10_000.0),
        kind=_ROPE_KINDS[kind],
        factor=factor if kind != "none" else 1.0,
        max_positions=max_positions,
        original_max_positions=keys.get("rope.scaling.original_context_length") if kind == "yarn" else None,
        attention_factor=magnitude,
        beta_fast=float(keys.get("rope.scaling.yarn_beta_fast") or 32.0),
        beta_slow=float(keys.get("rope.scaling.yarn_beta_slow") or 1.0),
    )


def _with_factors(rope: RopeConfig, factors: Sequence[float]) -> RopeConfig:
    """llama3 scaling, which GGUF files store as a tensor of divisors without saying how they were made.

    The published models all use low 1, high 4 over 8,192 original positions; the factor
    is the largest divisor. The guess is checked against every number.
    """
    low, high, original, largest = 1.0, 4.0, 8192, _as_written(max(factors))
    expected = []
    for pair in range(rope.dim // 2):
        turns = original * rope.theta ** (-2 * pair / rope.dim) / (2 * math.pi)
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        expected.append(1 / ((1 - kept) / largest + kept))
    close = len(factors) == len(expected) and all(
        math.isclose(found, wanted, rel_tol=1e-3) for found, wanted in zip(factors, expected)
    )
    if rope.kind != "default" or not close:
        raise ConfigError(
            f"rope_freqs.weight ({len(factors)} numbers up to {largest:g}) is not llama3 scaling with low 1, high 4 and "
            f"{original} original positions; load the safetensors checkpoint, whose config.json names the scaling"
        )
    return RopeConfig(dim=rope.dim, theta=rope.theta, kind="llama3", factor=largest,
                      max_positions=rope.max_positions, original_max_positions=original,
                      low_freq_factor=low, high_freq_factor=high)


def _as_written(value: float) -> float:
    """The short decimal that a float32 came from: 9.999999747378752e-06 was written as 1e-05."""
    return float(f"{value:.7g}")
