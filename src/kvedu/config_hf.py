"""A model configuration from a Hugging Face ``config.json``.

Strict: a setting that would change the maths and is not understood is an error
that names its key. Defaults of missing keys are those of transformers' classes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Mapping

from kvedu.config import FAMILIES, ModelConfig
from kvedu.config_experts import experts_from_hf
from kvedu.config_latent import latent_from_hf
from kvedu.errors import ConfigError
from kvedu.rope_config import rope_from_hf

_NEEDED = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
_MAX_POSITIONS = {"llama": 2048, "mistral": 131_072, "qwen2": 32_768, "qwen3": 32_768, "deepseek_v2": 2048, "deepseek_v3": 4096}
_LATENT = ("deepseek_v2", "deepseek_v3")
_READ_WITH_LATENT = ("qk_rope_head_dim", "rope_interleave")
_CHANGES_MATHS: dict[str, tuple[Any, ...]] = {
    "quantization_config": (None, {}),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "query_pre_attn_scalar": (None,),
    "clip_qkv": (None,),
    "attention_multiplier": (None,),
    "logit_scale": (None, 1),
    "logits_scaling": (None, 1),
    "embedding_multiplier": (None, 1),
    "residual_multiplier": (None, 1),
}
"""Keys of neighboring architectures that kvedu does not implement, and the values at which they do nothing."""


def config_from_hf(raw: Mapping[str, Any]) -> ModelConfig:
    """Read a ``config.json`` (as a dictionary).

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
    for key, neutral in _CHANGES_MATHS.items():
        if raw.get(key) not in neutral:
            raise ConfigError(f"config.json sets {key} to {raw[key]!r}, which kvedu does not implement")
    activation = raw.get("hidden_act") or "silu"
    if activation not in ("silu", "swish"):
        raise ConfigError(f"hidden_act {activation!r}: kvedu's MLP is SwiGLU and knows silu only")
    heads = raw["num_attention_heads"]
    kv_heads = raw.get("num_key_value_heads")
    latent = latent_from_hf(raw, family) if family in _LATENT else None
    if latent is not None:
        kv_heads, head_dim, _ = latent.cached(heads)
        raw = {key: value for key, value in raw.items() if key not in _READ_WITH_LATENT}
    else:
        head_dim = _head_dim(raw, family)
    max_positions = raw.get("max_position_embeddings") or _MAX_POSITIONS[family]
    window, windowed = _window(raw, family)
    biased = bool(raw.get("attention_bias")) and family in ("llama", "qwen3", *_LATENT)
    return ModelConfig(
        family=family,
        n_layers=raw["num_hidden_layers"],
        width=raw["hidden_size"],
        n_heads=heads,
        n_kv_heads=heads if kv_heads is None else kv_heads,
        head_dim=head_dim,
        mlp_width=raw["intermediate_size"],
        vocab_size=raw["vocab_size"],
        max_positions=max_positions,
        rope=rope_from_hf(raw, head_dim if latent is None else latent.rope_width, max_positions),
        norm_eps=float(raw.get("rms_norm_eps") or 1e-6),
        tied=bool(raw.get("tie_word_embeddings", False)),
        qkv_bias=family == "qwen2" or biased,
        out_bias=biased,
        mlp_bias=bool(raw.get("mlp_bias", False)) and family in ("llama", "deepseek_v2"),
        qk_norm=family == "qwen3",
        sliding_window=window,
        windowed_layers=windowed,
        latent=latent,
        experts=experts_from_hf(raw, family) if family in _LATENT else None,
        bos_id=_only_int(raw.get("bos_token_id")),
        eos_ids=id_tuple(raw.get("eos_token_id")),
        pad_id=_only_int(raw.get("pad_token_id")),
    )


def with_generation_config(config: ModelConfig, raw: Mapping[str, Any]) -> ModelConfig:
    """The same model with the special tokens of a ``generation_config.json``, which override ``config.json``'s.

    Chat models often end a turn with a token that only this file lists.
    """
    changes: dict[str, Any] = {}
    if raw.get("eos_token_id") is not None:
        changes["eos_ids"] = id_tuple(raw["eos_token_id"])
    for key, field in (("bos_token_id", "bos_id"), ("pad_token_id", "pad_id")):
        if raw.get(key) is not None:
            changes[field] = _only_int(raw[key])
    return replace(config, **changes)


def id_tuple(value: Any) -> tuple[int, ...]:
    """Token ids given as nothing, one integer or a list, as a tuple without repeats."""
    if value is None:
        return ()
    values = value if isinstance(value, (list, tuple)) else (value,)
    if any(isinstance(item, bool) or not isinstance(item, int) for item in values):
        raise ConfigError(f"a token id must be an integer or a list of integers, not {value!r}")
    return tuple(dict.fromkeys(values))


def _only_int(value: Any) -> int | None:
    """A single token id; of a list the first."""
    ids = id_tuple(value)
    return ids[0] if ids else None


def _head_dim(raw: Mapping[str, Any], family: str) -> int:
    """The head size as given; derived from the width if it is not (Qwen3's default is 128, whatever its width)."""
    if raw.get("head_dim") is not None:
        return raw["head_dim"]
    if family == "qwen3" and "head_dim" not in raw:
        return 128
    width, heads = raw["hidden_size"], raw["num_attention_heads"]
    if width % heads:
        raise ConfigError(f"hidden_size {width} is no multiple of {heads} heads and head_dim is not given")
    return width // heads


def _window(raw: Mapping[str, Any], family: str) -> tuple[int | None, tuple[bool, ...] | None]:
    """Sliding window and the layers that use it, by each family's own rules."""
    window = raw.get("sliding_window", None if family in ("llama", *_LATENT) else 4096)
    if family in ("llama", *_LATENT) or not window:
        return None, None
    kinds = raw.get("layer_types")
    if family.startswith("qwen"):
        if not raw.get("use_sliding_window", False):
            return None, None
        if kinds is None:
            first = raw.get("max_window_layers", 28)
            kinds = ["sliding_attention" if i >= first else "full_attention" for i in range(raw["num_hidden_layers"])]
    if kinds is None:
        return window, None
    unknown = set(kinds) - {"sliding_attention", "full_attention"}
    if unknown:
        raise ConfigError(f"layer_types {', '.join(sorted(unknown))} are not known; kvedu has sliding and full attention")
    return window, tuple(kind == "sliding_attention" for kind in kinds)
