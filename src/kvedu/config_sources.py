"""Where model configurations come from: Hugging Face ``config.json`` and GGUF metadata.

Both readers are strict: a setting that would change the maths and is not
understood is an error that names its key.
"""

from __future__ import annotations

from typing import Any, Mapping

from kvedu.config import FAMILIES, ModelConfig
from kvedu.errors import ConfigError
from kvedu.rope_config import RopeConfig, rope_from_hf

_NEEDED = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")


def config_from_hf(raw: Mapping[str, Any]) -> ModelConfig:
    """Read a Hugging Face ``config.json`` (as a dictionary).

    A missing or null ``num_key_value_heads`` means MHA; ``head_dim`` is used when
    given, else derived from the width. Raises ``ConfigError`` for an unknown
    architecture, a missing key, or a setting kvedu does not implement.
    """
    family = raw.get("model_type")
    if family not in FAMILIES:
        raise ConfigError(f"model_type {family!r} is not one kvedu implements: {', '.join(FAMILIES)}")
    missing = [key for key in _NEEDED if raw.get(key) is None]
    if missing:
        raise ConfigError(f"config.json lacks {', '.join(missing)}")
    activation = raw.get("hidden_act") or raw.get("hidden_activation") or "silu"
    if activation not in ("silu", "swish"):
        raise ConfigError(f"hidden_act {activation!r}: kvedu's MLP is SwiGLU and knows silu only")
    heads, width = raw["num_attention_heads"], raw["hidden_size"]
    head_dim = raw.get("head_dim")
    if head_dim is None:
        if width % heads:
            raise ConfigError(f"hidden_size {width} is no multiple of {heads} heads and head_dim is not given")
        head_dim = width // heads
    kv_heads = raw.get("num_key_value_heads")
    max_positions = raw.get("max_position_embeddings") or 2048
    window, windowed = _window(raw, family)
    biased = bool(raw.get("attention_bias", False))
    return ModelConfig(
        family=family,
        n_layers=raw["num_hidden_layers"],
        width=width,
        n_heads=heads,
        n_kv_heads=heads if kv_heads is None else kv_heads,
        head_dim=head_dim,
        mlp_width=raw["intermediate_size"],
        vocab_size=raw["vocab_size"],
        max_positions=max_positions,
        rope=rope_from_hf(raw, head_dim, max_positions),
        norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
        tied=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=family == "qwen2" or biased,
        out_bias=biased and family in ("llama", "qwen3"),
        mlp_bias=bool(raw.get("mlp_bias", False)),
        qk_norm=family == "qwen3",
        sliding_window=window,
        windowed_layers=windowed,
        bos_id=_only_int(raw.get("bos_token_id")),
        eos_ids=id_tuple(raw.get("eos_token_id")),
        pad_id=_only_int(raw.get("pad_token_id")),
    )


def _window(raw: Mapping[str, Any], family: str) -> tuple[int | None, tuple[bool, ...] | None]:
    """Sliding window and the layers that use it, by each family's own rules."""
    window = raw.get("sliding_window") or None
    if family == "llama" or window is None:
        return None, None
    if family.startswith("qwen"):
        if not raw.get("use_sliding_window", False):
            return None, None
        kinds = raw.get("layer_types")
        if kinds is None:
            first = raw.get("max_window_layers", 28)
            kinds = ["sliding_attention" if i >= first else "full_attention" for i in range(raw["num_hidden_layers"])]
    else:
        kinds = raw.get("layer_types")
    if kinds is None:
        return window, None
    unknown = set(kinds) - {"sliding_attention", "full_attention"}
    if unknown:
        raise ConfigError(f"layer_types {', '.join(sorted(unknown))} are not known; kvedu has sliding and full attention")
    return window, tuple(kind == "sliding_attention" for kind in kinds)


def id_tuple(value: Any) -> tuple[int, ...]:
    """Token ids given as nothing, one integer or a list, as a tuple."""
    if value is None:
        return ()
    return tuple(int(item) for item in value) if isinstance(value, (list, tuple)) else (int(value),)


def _only_int(value: Any) -> int | None:
    """A single token id; of a list the first."""
    ids = id_tuple(value)
    return ids[0] if ids else None


_GGUF_ROPE_KEYS = {"dimension_count", "freq_base", "scaling.type", "scaling.factor", "scaling.finetuned",
                      "scaling.original_context_length", "scaling.attn_factor", "scaling.yarn_beta_fast",
                      "scaling.yarn_beta_slow"}


def config_from_gguf(metadata: Mapping[str, Any], *, tied: bool, qkv_bias: bool = False) -> ModelConfig:
    """Read GGUF metadata (a dictionary of key to Python value).

    ``tied`` and ``qkv_bias`` are facts of the tensor list, not of the metadata: whether
    ``output.weight`` is absent and whether ``blk.0.attn_q.bias`` is present.
    Raises ``ConfigError`` for an unknown architecture, a missing key or an unread RoPE key.
    """
    family = metadata.get("general.architecture")
    if family not in FAMILIES:
        raise ConfigError(f"general.architecture {family!r} is not one kvedu implements: {', '.join(FAMILIES)}")

    def get(key: str, default: Any = None, *, needed: bool = False) -> Any:
        value = metadata.get(f"{family}.{key}", default)
        if needed and value is None:
            raise ConfigError(f"GGUF metadata lacks {family}.{key}")
        return value

    heads, width = get("attention.head_count", needed=True), get("embedding_length", needed=True)
    head_dim = get("attention.key_length") or width // heads
    if get("attention.value_length", head_dim) != head_dim:
        raise ConfigError(f"{family}.attention.value_length differs from key_length; kvedu's heads have one size")
    kv_heads = get("attention.head_count_kv")
    if isinstance(heads, (list, tuple)) or isinstance(kv_heads, (list, tuple)):
        raise ConfigError(f"{family}.attention.head_count differs by layer; kvedu has one head count for all layers")
    max_positions = get("context_length", 2048)
    vocab_size = get("vocab_size") or len(metadata.get("tokenizer.ggml.tokens") or ())
    rope = _rope_from_gguf(metadata, family, head_dim, max_positions)
    window = get("attention.sliding_window") or None
    return ModelConfig(
        family=family,
        n_layers=get("block_count", needed=True),
        width=width,
        n_heads=heads,
        n_kv_heads=heads if kv_heads is None else kv_heads,
        head_dim=head_dim,
        mlp_width=get("feed_forward_length", needed=True),
        vocab_size=vocab_size,
        max_positions=max_positions,
        rope=rope,
        norm_eps=float(get("attention.layer_norm_rms_epsilon", 1e-5)),
        tied=tied,
        qkv_bias=qkv_bias,
        qk_norm=family == "qwen3",
        sliding_window=window if family == "mistral" else None,
        bos_id=metadata.get("tokenizer.ggml.bos_token_id"),
        eos_ids=id_tuple(metadata.get("tokenizer.ggml.eos_token_id")),
        pad_id=metadata.get("tokenizer.ggml.padding_token_id"),
    )


def _rope_from_gguf(metadata: Mapping[str, Any], family: str, head_dim: int, max_positions: int) -> RopeConfig:
    prefix = f"{family}.rope."
    keys = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    unread = sorted(set(keys) - _GGUF_ROPE_KEYS)
    if unread:
        raise ConfigError(f"GGUF RoPE keys not understood: {', '.join(prefix + key for key in unread)}")
    kind = keys.get("scaling.type", "none")
    kinds = {"none": "default", "linear": "linear", "yarn": "yarn"}
    if kind not in kinds:
        raise ConfigError(f"{prefix}scaling.type {kind!r} is not one kvedu reads: {', '.join(kinds)}")
    return RopeConfig(
        dim=int(keys.get("dimension_count", head_dim)),
        theta=float(keys.get("freq_base", 10_000.0)),
        kind=kinds[kind],
        factor=float(keys.get("scaling.factor", 1.0)),
        max_positions=max_positions,
        original_max_positions=keys.get("scaling.original_context_length"),
        attention_factor=keys.get("scaling.attn_factor"),
        beta_fast=float(keys.get("scaling.yarn_beta_fast", 32.0)),
        beta_slow=float(keys.get("scaling.yarn_beta_slow", 1.0)),
    )
