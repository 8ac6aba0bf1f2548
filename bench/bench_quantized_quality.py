"""What few bits cost on real text: rounding errors of real keys and values, perplexity, and recall, format by format.

    python bench/bench_quantized_quality.py [--save] [--fresh]      # some 10 minutes of two cores; goes on where it was stopped

1. ``quantized_error``: keys and values of one text, coded per token and per channel; errors relative to the numbers
   themselves, and of attention's output, means over all layers.
2. ``quantized_quality``: perplexity of two frozen texts through each format, divergence from the full cache, copying
   random tokens, needles and many keys. A query sees keys as codes once they are old enough, whatever the step (see
   ``caches/paged_quantized``), so the numbers are those of decoding token by token.

In fp32, so that nothing but the codes is rounded.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from functools import partial

import torch
from torch import Tensor

import kvedu
from bench_evaluate import Stored
from kvedu import ConcatCache, KVFormat, PagedQuantizedCache, texts
from kvedu.caches.formats import Format, float8, integer, rotated, with_apart
from kvedu.caches.outliers import find_outliers
from kvedu.compress.evaluate.battery import battery, damages
from kvedu.compress.evaluate.feed import MakeCache
from kvedu.compress.evaluate.predict import predictions
from kvedu.kernels.attention import attention_reference, visible_causal
from kvedu.kernels.codes import decode, encode
from kvedu.model.transformer import Transformer

TEXTS, TOKENS, CALIBRATION = ("prose", "code"), 2048, 512
RECALL = (
    "int8 per token", "fp8 e4m3", "int4 per token", "int4 keys per channel", "KIVI, 4 bits, residual 32", "KIVI, 2 bits",
    "KIVI, 2 bits, residual 32", "int2 per token",
)  # fmt: skip
SEEN = 1024
"""Tokens of the text whose keys and values are looked at."""


def formats(apart_LKn: Tensor) -> dict[str, KVFormat]:
    """Every format that is measured, by the name that the book shows."""
    n = apart_LKn.shape[-1]

    def both(bits: int, group: int = 32, residual: int = 0) -> KVFormat:
        return KVFormat(integer(bits, group), integer(bits, group), residual)

    return {
        "int8 per token": KVFormat.int8(),
        "int8 per token, symmetric": KVFormat(integer(8, 64, symmetric=True), integer(8, 64, symmetric=True)),
        "fp8 e4m3": KVFormat.fp8(),
        "fp8 e5m2": KVFormat.fp8("e5m2"),
        "fp8 e4m3, groups of 64": KVFormat(float8("e4m3", 64), float8("e4m3", 64)),
        "int4 per token": both(4),
        "int4 per token, whole heads": both(4, 64),
        "int4 per token, symmetric": KVFormat(integer(4, 32, symmetric=True), integer(4, 32, symmetric=True)),
        "int4 per token, keys rotated": KVFormat(rotated(integer(4, 64)), integer(4, 64)),
        "int4 per token, both rotated": KVFormat(rotated(integer(4, 64)), rotated(integer(4, 64))),
        f"int4 per token, {n} key channels apart": KVFormat(with_apart(integer(4, 64), n), integer(4, 64), apart=apart_LKn),
        "int4 keys per channel": KVFormat(integer(4, 32, "tokens"), integer(4, 32)),
        "int4 both per channel": KVFormat(integer(4, 32, "tokens"), integer(4, 32, "tokens")),
        "KIVI, 4 bits": KVFormat.kivi(bits=4),
        "KIVI, 4 bits, residual 32": KVFormat.kivi(bits=4, residual=32),
        "KIVI, 2 bits": KVFormat.kivi(bits=2),
        "KIVI, 2 bits, residual 32": KVFormat.kivi(bits=2, residual=32),
        "KIVI, 2 bits, no residual": KVFormat.kivi(bits=2, residual=0),
        "int2 per token": both(2, residual=128),
        "int2 per token, no residual": both(2),
        "int2 both per channel": KVFormat(integer(2, 32, "tokens"), integer(2, 32, "tokens"), residual=128),
        "int2 per token, keys rotated": KVFormat(rotated(integer(2, 32)), integer(2, 32), residual=128),
    }


def described(format: KVFormat, D: int) -> dict[str, float | int]:
    """Stored bits of each element of keys and of values, scales and all, where a tail is forgotten; and the tail."""
    keys, values = (side.sized.bits_per_element + 8 * side.sized.apart_bytes / D for side in (format.keys, format.values))
    return {"key_bits": keys, "value_bits": values, "residual": format.residual}


def cache_of(format: KVFormat) -> MakeCache:
    """A maker of pages in this format, enough for a text and for all questions about one."""
    return partial(PagedQuantizedCache, format=format, n_pages=128, page_size=32, max_sequences=16)


@torch.inference_mode()
def errors(model: Transformer, ids: list[int]) -> dict[str, dict[str, float]]:
    """Root mean square errors of coded keys and values over those of the numbers, and of attention's output."""
    config = model.config
    cache = ConcatCache(config)
    seq, queries = cache.add(), []
    with cache.step({seq: len(ids)}) as view:
        attend = view.attend
        view.attend = lambda layer, q_NHD: queries.append(q_NHD) or attend(layer, q_NHD)
        model.hidden(torch.tensor(ids), view)
    axes = {"per token": "head", "per channel": "tokens"}
    out: dict[str, dict[str, float]] = {}
    for bits in (8, 4, 2):
        for axis, along in axes.items():
            sums = dict.fromkeys(("keys", "values", "output_of_keys", "output_of_values"), 0.0)
            for layer, q_NHD in enumerate(queries):
                k_SKD, v_SKD = cache._read(layer, seq, len(ids))
                coded_k, coded_v = (rounded(x, integer(bits, 32, along)) for x in (k_SKD, v_SKD))
                q_THD, visible = q_NHD[-64:], visible_causal(torch.arange(len(ids) - 64, len(ids)), torch.arange(len(ids)))
                true = attention_reference(q_THD, k_SKD, v_SKD, visible)
                for name, got, wanted in (
                    ("keys", coded_k, k_SKD),
                    ("values", coded_v, v_SKD),
                    ("output_of_keys", attention_reference(q_THD, coded_k, v_SKD, visible), true),
                    ("output_of_values", attention_reference(q_THD, k_SKD, coded_v, visible), true),
                ):
                    sums[name] += ((got - wanted).norm() / wanted.norm()).item() / config.L
            out[f"{bits} bits, {axis}"] = sums
    return out


def rounded(x_SKD: Tensor, format: Format) -> Tensor:
    """There and back."""
    return decode(encode(x_SKD, format), format, x_SKD.shape[-1])


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="store the rows under bench/results")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    options = parser.parse_args(argv)
    command = " ".join(["python", "bench/bench_quantized_quality.py", *argv])
    model = kvedu.load(dtype=torch.float32, device="cpu").pack()
    ids = {name: model.tokenizer.encode(texts.read(name))[:TOKENS] for name in TEXTS}
    apart = find_outliers(model, model.config, model.tokenizer.encode(texts.read("story"))[:CALIBRATION], 4)
    hashes = {name: texts.sha256(name) for name in (*TEXTS, "story")}
    common = {"model": "smollm2-135m", "dtype": "float32", "texts": hashes}

    row = Stored("quantized_error", common | {"tokens": SEEN, "group": 32}, command, options.save, options.fresh)
    if "errors" not in row:
        row["errors"] = errors(model, ids["prose"][:SEEN])

    settings = common | {"tokens": TOKENS, "calibration": CALIBRATION, "channels_apart": 4, "length": 512}
    row = Stored("quantized_quality", settings, command, options.save, options.fresh)
    makes = {name: cache_of(format) for name, format in formats(apart).items()}
    if "formats" not in row:
        row["formats"] = {name: described(format, model.config.D) for name, format in formats(apart).items()}
    for text in TEXTS:
        if text not in row:
            found = predictions(model, ids[text], makes, chunk=512)
            row[text] = {name: asdict(one) | {"loss": one.loss} for name, one in found.items()}
    tasks = battery(model, 512, n=2, copies=1)
    if (key := "recall, full") not in row:
        ((_, damage),) = damages(model, tasks, {"": ConcatCache}, chunk=None)
        row[key] = asdict(damage)
    for name in RECALL:
        if (key := f"recall, {name}") not in row:
            ((_, damage),) = damages(model, tasks, {"": makes[name]}, chunk=256)
            row[key] = asdict(damage)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
