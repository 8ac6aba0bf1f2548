"""Bytes of a KV cache: per token, in all, and how much fits.

The one formula, per token and layer: 2 (a key and a value) x K heads x D elements x bytes per
element. Everything else here is a layout that changes one factor of it: fewer KV heads (GQA,
MQA), fewer tokens (window), one short vector (latent), fewer bits (quantized).
K is the number of KV heads. Some texts call it G; here G is queries per KV head.
"""

from __future__ import annotations

from kvedu.analysis.quantized import Quantized
from kvedu.analysis.shape import AttentionShape, shape_of
from kvedu.analysis.weights import activation_bytes, parameter_count, parameters, weight_bytes, weights_read
from kvedu.config import ModelConfig
from kvedu.errors import KveduError

__all__ = [
    "Quantized", "AttentionShape", "activation_bytes", "kv_bytes_per_token", "kv_bytes_per_token_per_layer",
    "kv_cache_bytes", "max_batch", "max_tokens_in", "parameter_count", "parameters", "weight_bytes", "weights_read",
]  # fmt: skip

Model = ModelConfig | AttentionShape


def kv_bytes_per_token_per_layer(
    model: Model, bytes_per_element: int = 2, *, keys: Quantized | None = None, values: Quantized | None = None
) -> int:
    """Bytes that one more token adds to one layer of the cache.

    ``keys`` and ``values`` give a quantized format for either side; a side without one is
    stored plain, at ``bytes_per_element`` (2 for bf16 and fp16). A latent cache has one vector,
    which is the keys' side. Raises ``KveduError`` for a format grouped along tokens: a lone
    token has no size there, so ask ``kv_cache_bytes``.

    >>> kv_bytes_per_token_per_layer(AttentionShape(32, 32, 8, 128))    # Llama-3-8B: 4 KiB
    4096
    """
    if any(side is not None and side.along == "tokens" for side in (keys, values)):
        raise KveduError(
            "a group along tokens shares its scale between tokens, so one token has no size of its own; "
            "use kv_cache_bytes with the number of tokens you hold"
        )
    return _layer_bytes(shape_of(model), 1, bytes_per_element, keys, values)


def kv_bytes_per_token(
    model: Model, bytes_per_element: int = 2, *, keys: Quantized | None = None, values: Quantized | None = None
) -> int:
    """Bytes that one more token adds to the whole cache, while no window is full.

    Arguments and errors as in ``kv_bytes_per_token_per_layer``. The head size is the config's own:
    width / heads is wrong for Qwen3-4B (2,560 / 32 = 80, head size 128).

    >>> kv_bytes_per_token(AttentionShape(36, 32, 8, 128))              # Qwen3-4B, bf16
    147456
    >>> kv_bytes_per_token(AttentionShape(61, 128, 128, 128, latent=512, rope_width=64))    # DeepSeek-V3
    70272
    """
    return shape_of(model).n_layers * kv_bytes_per_token_per_layer(model, bytes_per_element, keys=keys, values=values)


def kv_cache_bytes(
    model: Model,
    tokens: int,
    batch: int = 1,
    bytes_per_element: int = 2,
    *,
    keys: Quantized | None = None,
    values: Quantized | None = None,
    residual: int | None = None,
    held: int | None = None,
) -> int:
    """Bytes of the KV cache of ``batch`` sequences of ``tokens`` tokens each.

    A windowed layer holds min(tokens, window) of them. With ``residual`` the last so many tokens of a
    quantized side, and those that fill no group along the tokens, are stored plain at
    ``bytes_per_element``, as in ``caches.quantized``; None codes all. A cache that never holds more
    than ``held`` tokens of a sequence (sinks and a window, a budget) is given that number.
    Cost: O(1), windows of one size. Raises ``KveduError`` for negative counts.

    >>> from kvedu.units import binary
    >>> binary(kv_cache_bytes(AttentionShape(80, 64, 8, 128), 4096))    # a 70B model with 8 KV heads
    '1.25 GiB'
    >>> binary(kv_cache_bytes(AttentionShape(80, 64, 64, 128), 4096))   # the same with MHA
    '10.00 GiB'
    """
    if tokens < 0 or batch < 0:
        raise KveduError(f"tokens and batch count things: {tokens} and {batch} cannot be negative")
    if min(residual or 0, held or 0) < 0:
        raise KveduError(f"residual and held count tokens: {residual} and {held} cannot be negative")
    shape = shape_of(model)
    tokens = tokens if held is None else min(tokens, held)
    per_sequence = sum(
        layers
        * _layer_bytes(shape, tokens if window is None else min(tokens, window), bytes_per_element, keys, values, residual)
        for layers, window in shape.layer_groups()
    )
    return batch * per_sequence


def max_tokens_in(
    budget_bytes: int,
    model: Model,
    batch: int = 1,
    bytes_per_element: int = 2,
    *,
    keys: Quantized | None = None,
    values: Quantized | None = None,
) -> int | None:
    """Most tokens per sequence whose cache fits the budget; None if the length has no limit.

    There is no limit when every layer has a window and full windows fit: the cache stops
    growing. Cost: O(log of the answer). Raises ``KveduError`` for a negative budget.

    >>> from kvedu.units import GiB
    >>> max_tokens_in(16 * GiB, AttentionShape(32, 32, 8, 128))         # Llama-3-8B, bf16
    131072
    """
    _check_budget(budget_bytes, batch)
    shape = shape_of(model)

    def fits(tokens: int) -> bool:
        return kv_cache_bytes(shape, tokens, batch, bytes_per_element, keys=keys, values=values) <= budget_bytes

    if shape.window is not None and all(window is not None for _, window in shape.layer_groups()) and fits(shape.window):
        return None
    too_many = 1
    while fits(too_many):
        too_many *= 2
    enough = too_many // 2
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        enough, too_many = (middle, too_many) if fits(middle) else (enough, middle)
    return enough


def max_batch(
    budget_bytes: int,
    model: Model,
    tokens: int,
    bytes_per_element: int = 2,
    *,
    keys: Quantized | None = None,
    values: Quantized | None = None,
) -> int:
    """Most sequences of ``tokens`` tokens whose caches fit the budget together.

    Raises ``KveduError`` for a negative budget or for sequences of no tokens (any number fits).

    >>> from kvedu.units import GiB
    >>> max_batch(16 * GiB, AttentionShape(32, 32, 8, 128), tokens=4096)
    32
    """
    _check_budget(budget_bytes, 1)
    if tokens < 1:
        raise KveduError(f"sequences of {tokens} tokens need no memory: any number fits; give at least 1 token")
    one = kv_cache_bytes(model, tokens, 1, bytes_per_element, keys=keys, values=values)
    return budget_bytes // one


def _layer_bytes(
    shape: AttentionShape,
    tokens: int,
    bytes_per_element: int,
    keys: Quantized | None,
    values: Quantized | None,
    residual: int | None = None,
) -> int:
    if bytes_per_element < 1:
        raise KveduError(f"an element takes at least 1 byte, not {bytes_per_element}; for fewer bits give keys= and values=")
    if values is not None and len(shape.vectors) == 1:
        raise KveduError("a latent cache stores one vector per token: give its format as keys=, there are no values")
    total = 0
    for (count, length), side in zip(shape.vectors, (keys, values)):
        coded = 0 if side is None else tokens if residual is None else side.coded(tokens, residual)
        total += (tokens - coded) * count * length * bytes_per_element
        total += side.bytes_of(coded, count, length) if side is not None else 0
    return total


def _check_budget(budget_bytes: int, batch: int) -> None:
    if budget_bytes < 0:
        raise KveduError(f"a budget of {budget_bytes} bytes: subtract weights and activations, what is left must not be negative")
    if batch < 1:
        raise KveduError(f"batch must be at least 1, not {batch}")
