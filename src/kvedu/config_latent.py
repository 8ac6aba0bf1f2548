"""Multi-head latent attention as numbers: one short vector per token in place of keys and values of every head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Mapping

from kvedu.errors import ConfigError

NORM_EPS = 1e-6
"""Epsilon of the norms on latents: DeepSeek's code leaves it at the class's default, whatever ``rms_norm_eps`` says."""


@dataclass(frozen=True)
class LatentConfig:
    """Widths of multi-head latent attention (MLA).

    A token leaves a latent of ``width`` Z, from which keys and values of all heads are made, and one key of
    ``rope_width`` R that is rotated and shared by all heads. A query and key have ``nope_width`` unrotated
    elements and R rotated ones; a value has ``value_width``. ``query_width`` is the width of the query's own
    latent, None where queries are projected at once. ``interleaved``: the checkpoint's RoPE pairs are neighbors
    (2j, 2j + 1); loading puts them into halves, as everywhere here.

    ``absorbed`` says in which of two equal ways it is computed: over the latents themselves, as one KV head of
    Z + R elements that all queries share; or written out, with keys and values of every head.

    Raises ``ConfigError`` for widths that no such attention has.
    Source: DeepSeek-V2 (2024); their d_c is our Z, d_c' our ``query_width``, d_h^R our R, d_h our ``nope_width``.
    """

    width: int
    rope_width: int
    nope_width: int
    value_width: int
    query_width: int | None = None
    interleaved: bool = True
    absorbed: bool = True

    def __post_init__(self) -> None:
        for name in ("width", "rope_width", "nope_width", "value_width"):
            if getattr(self, name) < 1:
                raise ConfigError(f"a latent's {name} must be at least 1, not {getattr(self, name)}")
        if self.rope_width % 2:
            raise ConfigError(f"RoPE rotates pairs: rope_width must be even, not {self.rope_width}")
        if self.query_width is not None and self.query_width < 1:
            raise ConfigError(f"query_width must be at least 1, or None for queries without a latent, not {self.query_width}")

    @property
    def query_key_width(self) -> int:
        """Elements of a head's query and of its key, written out: the square root of this number divides scores."""
        return self.nope_width + self.rope_width

    def cached(self, heads: int) -> tuple[int, int, int]:
        """What attention looks at in a cache: KV heads (K), elements of a key (D) and of a value.

        >>> latent = LatentConfig(width=512, rope_width=64, nope_width=128, value_width=128)
        >>> latent.cached(128)
        (1, 576, 512)
        """
        if self.absorbed:
            return 1, self.width + self.rope_width, self.width
        return heads, self.query_key_width, self.value_width

    @property
    def rope_rows(self) -> tuple[int, ...]:
        """Order of a rotated part's rows in a checkpoint that puts them into halves.

        >>> LatentConfig(width=4, rope_width=6, nope_width=4, value_width=4).rope_rows
        (0, 2, 4, 1, 3, 5)
        """
        rows = range(self.rope_width)
        return (*rows[::2], *rows[1::2]) if self.interleaved else tuple(rows)


def latent_from_hf(raw: Mapping[str, Any], family: str) -> LatentConfig:
    """The latents of a DeepSeek ``config.json``; defaults of missing keys are transformers'.

    Raises ``ConfigError`` naming the key in the way: a V2 file that asks for halves, which its code never looks at.
    """
    interleaved = raw.get("rope_interleave", True)
    if family == "deepseek_v2" and not interleaved:
        raise ConfigError("rope_interleave is false in a deepseek_v2 config, whose code rotates neighbors whatever it says; remove it")
    return LatentConfig(
        width=raw.get("kv_lora_rank", 512),
        rope_width=raw.get("qk_rope_head_dim", 64),
        nope_width=raw.get("qk_nope_head_dim", 128),
        value_width=raw.get("v_head_dim", 128),
        query_width=raw.get("q_lora_rank", 1536),
        interleaved=bool(interleaved),
    )
