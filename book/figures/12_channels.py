"""SmolLM2's keys and values, and its perplexity with them in codes of 2, 4 and 8 bits."""

from functools import partial
from typing import Any, Callable

import torch

import kvedu
from kvedu import ConcatCache, QuantizedCache, texts
from kvedu.caches.contract import Cache
from kvedu.caches.formats import integer
from kvedu.compress.evaluate.predict import predictions
from kvedu.kernels.codes import decode, encode
from kvedu.model.dtype import fast_dtype
from kvedu.viz import channels

HEADS = ((27, 2), (12, 0), (7, 2))
TOKENS, TEXT, CHUNK = 64, 385, 32
EXACT = channels.GROUP // 2
"""Tokens of a per-token side that stay exact: what a tail that is coded in groups holds on average."""
BITS = (8, 4, 2)

Make = Callable[..., Cache]


def one_side(side: str, along: str, bits: int) -> Make:
    """A cache with one side coded. The other has 8 bits in groups of two, their own ends: in effect exact."""
    exact = integer(8, 2, scale_dtype=torch.float32)
    this = integer(bits, channels.GROUP, along)
    keys, values = (this, exact) if side == "keys" else (exact, this)
    return partial(QuantizedCache, keys=keys, values=values, residual=EXACT if along == "head" else 0)


def head_of(keys_LSKD: torch.Tensor, values_LSKD: torch.Tensor, layer: int, head: int) -> dict[str, Any]:
    """One head's numbers, two decimals."""
    tables = ([[round(x, 2) for x in row] for row in t[layer, :TOKENS, head].tolist()] for t in (keys_LSKD, values_LSKD))
    return dict(zip(("name", "keys", "values"), (f"layer {layer}, head {head}", *tables)))


def error_of_keys(keys_LSKD: torch.Tensor, along: str, bits: int) -> float:
    """Relative error, mean over the layers."""
    form = integer(bits, channels.GROUP, along)
    return sum(((decode(encode(k, form), form, k.shape[-1]) - k).norm() / k.norm()).item() for k in keys_LSKD) / len(keys_LSKD)


def run() -> dict[str, Any]:
    """The figure's data."""
    dtype = fast_dtype("cpu")[0]
    model = kvedu.load("smollm2-135m", dtype=dtype, device="cpu").pack()
    ids = model.tokenizer.encode(texts.read("prose"))[:TEXT]
    cache = ConcatCache(model.config)
    seq = cache.add()
    with torch.inference_mode(), cache.step({seq: 256}) as view:
        model.hidden(torch.tensor(ids[:256]), view)
    keys_LSKD, values_LSKD = (torch.stack([cache._read(layer, seq, 256)[i] for layer in range(model.config.L)]) for i in (0, 1))
    heads = [head_of(keys_LSKD, values_LSKD, *which) for which in HEADS]

    grid = {(side, along, bits): one_side(side, along, bits) for side in ("keys", "values") for along in ("head", "tokens") for bits in BITS}
    found = predictions(model, ids, {str(key): make for key, make in grid.items()}, chunk=CHUNK)
    measured = [
        dict(zip(("side", "along", "bits"), key)) | {"perplexity": round(found[str(key)].perplexity, 3), "kl": round(found[str(key)].kl, 5)}
        for key in grid
    ]
    full = round(next(iter(found.values())).full_perplexity, 3)
    small, large = (error_of_keys(keys_LSKD, along, 4) for along in ("tokens", "head"))
    data = channels.data(heads, measured, full, predict={
        "question": "These are 64 keys of one head: a row is a token, a column a channel. They are to be coded in 4 bits, and 32 numbers "
        "share a scale. Should they be neighbors in a row (per token) or in a column (per channel)?",
        "choices": ["in a row", "in a column", "it makes no difference"],
        "answer": 1,
        "because": f"A column's numbers are alike, a row's are not: one large channel stretches the scale for all 32. Over all layers the keys "
        f"come back {100 * large:.0f} % off by rows, {100 * small:.0f} % by columns, for the same number of bytes.",
    })  # fmt: skip
    return data | {
        "source": f"SmolLM2-135M in {str(dtype).removeprefix('torch.')} on the first {TEXT} tokens of the frozen text prose "
        f"(sha256 {texts.sha256('prose')[:8]}), {CHUNK} at a time",
    }  # fmt: skip
