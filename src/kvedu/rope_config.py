"""RoPE's settings as a checkpoint states them: kind, base, rotated width, scaling numbers.

The maths that uses them is in ``kernels/rope``. Every key of a checkpoint's RoPE
block is either read here or named in an error: a scaling that is parsed and then
ignored gives a model that looks right on short prompts only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from kvedu.errors import ConfigError

KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


@dataclass(frozen=True)
class RopeConfig:
    """Rotary position embedding of one model.

    ``dim`` is the rotated width in elements (D times the partial factor, even);
    ``theta`` the base of the geometric series of wavelengths; ``factor`` the
    context extension (1 = none). The other fields belong to one kind each and
    are named as in Hugging Face configs.
    """

    dim: int
    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    max_positions: int = 2048
    original_max_positions: int | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True
    short_factor: tuple[float, ...] | None = None
    long_factor: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"RoPE kind {self.kind!r} is unknown; kvedu knows {', '.join(KINDS)}")
        if self.dim < 2 or self.dim % 2:
            raise ConfigError(f"RoPE rotates pairs: its width must be even and at least 2, not {self.dim}")
        if not self.theta > 0 or not self.factor > 0:
            raise ConfigError(f"RoPE theta and factor must be positive, not {self.theta} and {self.factor}")
        if self.kind == "llama3" and None in (self.low_freq_factor, self.high_freq_factor, self.original_max_positions):
            raise ConfigError(
                "llama3 RoPE needs low_freq_factor, high_freq_factor and original_max_position_embeddings"
            )
        if self.kind == "longrope":
            for name in ("short_factor", "long_factor"):
                values = getattr(self, name)
                if values is None or len(values) != self.dim // 2:
                    raise ConfigError(
                        f"longrope needs {name} with one number per rotated pair ({self.dim // 2}), "
                        f"got {'none' if values is None else len(values)}"
                    )

    @property
    def switch_length(self) -> int | None:
        """Sequence length past which the frequencies change, or None if they never do.

        Keys cached before the switch were rotated with other frequencies than the
        queries after it, so a cache refuses to carry a sequence across.
        """
        if self.kind == "dynamic":
            return self.max_positions
        if self.kind == "longrope":
            return self.original_max_positions or self.max_positions
        return None


_COMMON = {"factor": "factor", "original_max_position_embeddings": "original_max_positions"}
_SCALING_KEYS: dict[str, dict[str, str]] = {
    "default": {},
    "linear": {"factor": "factor"},
    "dynamic": {"factor": "factor"},
    "llama3": _COMMON | {"low_freq_factor": "low_freq_factor", "high_freq_factor": "high_freq_factor"},
    "yarn": _COMMON | {key: key for key in ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
                                            "truncate")},
    "longrope": _COMMON | {key: key for key in ("attention_factor", "short_factor", "long_factor")},
}
"""Per kind, the keys of its block that its maths uses, and our names for them."""

_EVERY_KIND = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
_BESIDE = {"rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "rope_interleaved"}


def rope_from_hf(raw: Mapping[str, Any], head_dim: int, max_positions: int) -> RopeConfig:
    """RoPE settings of a Hugging Face ``config.json``.

    Reads both spellings that exist: ``rope_theta`` and ``rope_scaling`` beside each
    other, and one ``rope_parameters`` block; the kind under ``rope_type`` or ``type``.
    Where the block and the keys beside it differ, the block wins, as in transformers.
    Raises ``ConfigError`` naming any key that it does not read.
    """
    block = _block(raw)
    kind = block.get("rope_type") or block.get("type") or "default"
    if kind not in KINDS:
        raise ConfigError(f"rope_type {kind!r} is unknown; kvedu knows {', '.join(KINDS)}")
    used = _SCALING_KEYS[kind]
    unread = sorted(key for key in block.keys() - used.keys() - _EVERY_KIND if block[key] is not None)
    if unread:
        raise ConfigError(
            f"RoPE keys not used by rope_type {kind!r}: {', '.join(unread)}; "
            "loading would ignore them: correct rope_type, or remove them from config.json"
        )
    settings = {field: block[key] for key, field in used.items() if block.get(key) is not None}
    for name in ("short_factor", "long_factor"):
        if name in settings:
            settings[name] = tuple(float(value) for value in settings[name])
    if "original_max_position_embeddings" in used:
        # Phi-3 keeps the original length beside the block, where it wins; without any, it is the whole length.
        beside = raw.get("original_max_position_embeddings")
        settings["original_max_positions"] = beside or settings.get("original_max_positions") or max_positions
    if "factor" in used and "factor" not in settings:
        if kind not in ("yarn", "longrope"):
            raise ConfigError(f"{kind} RoPE needs a factor and the block has none: {block}")
        settings["factor"] = max_positions / settings["original_max_positions"]
    partial = _first(block.get("partial_rotary_factor"), raw.get("partial_rotary_factor"), 1.0)
    return RopeConfig(
        dim=int(head_dim * partial),
        theta=float(_first(block.get("rope_theta"), raw.get("rope_theta"), 10_000.0)),
        kind=kind,
        max_positions=max_positions,
        **settings,
    )


def _block(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The one RoPE block of a config, with everything that looks like RoPE and is not read refused."""
    stray = sorted(key for key in raw if ("rope" in key or "rotary" in key) and key not in _BESIDE)
    if stray:
        raise ConfigError(f"RoPE keys not understood: {', '.join(stray)}; loading would ignore them")
    if raw.get("rope_interleaved"):
        raise ConfigError("rope_interleaved is true and kvedu rotates halves, not neighbours; convert Q and K first")
    blocks = [dict(raw[key]) for key in ("rope_scaling", "rope_parameters") if raw.get(key)]
    if len(blocks) == 2 and any(blocks[0][key] != blocks[1][key] for key in blocks[0].keys() & blocks[1].keys()):
        raise ConfigError(f"rope_scaling {blocks[0]} and rope_parameters {blocks[1]} disagree; keep one")
    block = {key: value for one in blocks for key, value in one.items()}
    if any(isinstance(value, Mapping) for value in block.values()):
        raise ConfigError(
            f"rope_parameters differ by layer type ({', '.join(block)}); kvedu has one RoPE for all layers"
        )
    if "rope_type" in block and "type" in block and block["rope_type"] != block["type"]:
        raise ConfigError(f"rope_type {block['rope_type']!r} and type {block['type']!r} disagree; remove one")
    return block


def _first(*values: Any) -> Any:
    """The first value that is not None (0.0 is a value)."""
    return next(value for value in values if value is not None)
