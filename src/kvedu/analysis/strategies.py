"""Ways to make a cache smaller, side by side: what each holds, reads and moves for one model, machine, length and batch.

Bytes are exact (``analysis.memory``); the time of a step is the bound that bytes over bandwidth give, since that
is what decode waits for. What a strategy loses is not computed here: it is measured, and handed to ``choose``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Mapping, Sequence

from kvedu.analysis.eviction import evidence_bytes
from kvedu.analysis.memory import kv_cache_bytes
from kvedu.analysis.quantized import Quantized
from kvedu.analysis.roofline import Hardware
from kvedu.analysis.shape import AttentionShape, shape_of
from kvedu.analysis.weights import weight_bytes
from kvedu.config import ModelConfig
from kvedu.errors import KveduError

SINKS, WINDOW = 4, 1024
"""Tokens that the window strategy keeps: the first ones, and the last ones."""
LATENT, LATENT_ROPE = 512, 64
"""Width of a trained latent and of its rotated part, as in DeepSeek-V2."""
HOST_BANDWIDTH = 50e9
"""Bytes a second between host and GPU: what PCIe 5.0 x16 (64 GB/s by its specification) leaves after its protocol."""


@dataclass(frozen=True)
class Strategy:
    """One way to hold the keys and values of a model.

    ``keys``, ``values``, ``residual``: how they are coded. ``keeps``: share of the tokens that stay, chosen by
    a score; ``window``: or the last ones only. ``host``: all but two layers lie in host memory.
    ``kv_heads`` and ``latent`` describe another model, which has to be trained.
    """

    name: str
    keys: Quantized | None = None
    values: Quantized | None = None
    residual: int = 0
    keeps: float = 1.0
    window: int | None = None
    host: bool = False
    kv_heads: int | None = None
    latent: tuple[int, int] | None = None

    @property
    def retrains(self) -> bool:
        """Whether it needs a model that was trained for it."""
        return self.kv_heads is not None or self.latent is not None

    def shape(self, model: AttentionShape) -> AttentionShape:
        """The model's shape, or that of the model it would have to be."""
        if self.kv_heads is not None:
            return replace(model, n_kv_heads=self.kv_heads)
        if self.latent is not None:
            return replace(model, latent=self.latent[0], rope_width=self.latent[1], value_dim=None)
        return model

    def tokens(self, context: int) -> int:
        """Tokens held of a text of ``context`` tokens."""
        if self.window is not None:
            return min(context, self.window)
        return math.ceil(context * self.keeps)

    def held(self, model: ModelConfig | AttentionShape, context: int, batch: int = 1) -> int:
        """Bytes of ``batch`` sequences' caches, wherever they lie: scales and scores included.

        Elements that are not coded have 2 bytes.
        """
        shape = self.shape(shape_of(model))
        tokens = self.tokens(context)
        known = evidence_bytes(shape, tokens, 1, batch) if self.keeps < 1 else 0
        coding = {"keys": self.keys, "values": self.values, "residual": self.residual}
        return known + kv_cache_bytes(shape, tokens, batch, **coding)


def int8(head: int) -> Quantized:
    """8 bits, symmetric, one 2-byte scale for each token's head of ``head`` elements."""
    return Quantized(8, head)


def kivi(bits: int) -> tuple[Quantized, Quantized]:
    """KIVI's two formats: keys along the tokens, values along the head, groups of 32 with scale and zero point."""
    return Quantized(bits, 32, zero_bytes=2, along="tokens"), Quantized(bits, 32, zero_bytes=2)


def strategies(head: int) -> tuple[Strategy, ...]:
    """The ways that the book compares, for heads of ``head`` elements; the first one changes nothing."""
    return (
        Strategy("bf16, as trained"),
        Strategy("int8", int8(head), int8(head)),
        Strategy("4 bit, KIVI", *kivi(4), residual=128),
        Strategy("2 bit, KIVI", *kivi(2), residual=128),
        Strategy("window and sinks", window=SINKS + WINDOW),
        Strategy("evict to a quarter", keeps=0.25),
        Strategy("offload to the host", host=True),
        Strategy("MQA", kv_heads=1),
        Strategy("MLA", latent=(LATENT, LATENT_ROPE)),
    )


@dataclass(frozen=True)
class Option:
    """A strategy for one model, machine, length and batch. Bytes and seconds."""

    strategy: Strategy
    weights: int
    cache: int
    """On the GPU, all sequences."""
    room: int
    """Memory that weights and caches may take."""
    step: float
    """Least time of a decode step: bytes over bandwidth."""
    most: int
    """Sequences of this length that fit."""

    @property
    def fits(self) -> bool:
        """Whether weights and caches find room together."""
        return self.weights + self.cache <= self.room


def options(
    config: ModelConfig, hw: Hardware, context: int, batch: int, *, reserve: float = 0.1, host_bandwidth: float = HOST_BANDWIDTH
) -> list[Option]:
    """Every strategy for ``batch`` sequences of ``context`` tokens; a share ``reserve`` of the memory stays free.

    A step reads the weights and every cache once; what lies in the host's memory comes over ``host_bandwidth``,
    while the GPU computes. Raises ``KveduError`` for counts below 1 or a machine whose memory is not known.

    >>> from kvedu.analysis.hardware import hardware
    >>> from kvedu.analysis.known_models import known_model
    >>> plain, coded, *_ = options(known_model("Llama-3-8B").config, hardware("L4"), context=8192, batch=8)
    >>> plain.fits, coded.fits, plain.most, coded.most
    (False, True, 5, 10)
    """
    if context < 1 or batch < 1:
        raise KveduError(f"a text has at least 1 token and a batch 1 sequence; got {context} and {batch}")
    if hw.memory is None:
        raise KveduError(f"the memory of {hw.name} is not known; use a machine of analysis.hardware")
    room, weights = int((1 - reserve) * hw.memory), weight_bytes(config)
    return [_option(s, config, hw, context, batch, room, weights, host_bandwidth) for s in strategies(config.D)]


def _option(
    strategy: Strategy, config: ModelConfig, hw: Hardware, context: int, batch: int, room: int, weights: int, host_bandwidth: float
) -> Option:
    one = strategy.held(config, context)
    here = -(-2 * one // config.L) if strategy.host else one  # the layer that is computed, and the next
    moved = batch * one / host_bandwidth if strategy.host else 0.0
    step = max((weights + batch * one) / hw.bandwidth, moved)
    return Option(strategy, weights, batch * here, room, step, max(0, room - weights) // here)


def choose(
    options: Sequence[Option], losses: Mapping[str, float], seconds: float | None = None
) -> Option | None:
    """The strategy that loses least among those that fit, are in time, and need no new model.

    ``seconds`` is the limit of a step. ``losses`` is measured: name → loss on the task that matters (a
    missing one counts as unknown, and is not chosen). Equal losses: the one that changes less, in the
    order of ``strategies``. None where nothing is left.
    """
    able = [
        option
        for option in options
        if option.fits
        and not option.strategy.retrains
        and option.strategy.name in losses
        and (seconds is None or option.step <= seconds)
    ]
    return min(able, key=lambda option: losses[option.strategy.name], default=None)
