"""Decode speed over caches in few bits, against bf16 and fp32, at 4,096 and 8,192 tokens of context, in one run.

    python bench/bench_quantized.py [--save] [--contexts 4096,8192] [--rounds 7] [--steps 6]

One real prefill per context; its keys and values are put into every cache. Then all settings decode in turns, the
same few tokens each time, so a slow spell of a shared machine meets all of them. Rates are medians, ratios medians
over the rounds. Also counted: the bytes of each cache, and what fraction of a step is weights.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path
from statistics import median

import torch

import kvedu
from kvedu import ConcatCache, KVFormat, PagedCache, PagedQuantizedCache, Transformer
from kvedu.analysis.memory import kv_cache_bytes, weights_read
from kvedu.book.rows import save_row
from kvedu.caches.contract import Cache
from kvedu.caches.formats import integer, rotated
from kvedu.model.dtype import fast_dtype
from kvedu.texts import all_text
from kvedu.units import binary

RESULTS = Path(__file__).resolve().parent / "results"
PAGE = 64
FORMATS = {
    "int8": KVFormat.int8(),
    "int8, rotated keys": KVFormat(rotated(integer(8, 64)), integer(8, 64)),
    "fp8 e4m3": KVFormat.fp8(),
    "fp8 e5m2": KVFormat.fp8("e5m2"),
    "int4 per token": KVFormat(integer(4, 64), integer(4, 64)),
    "KIVI, 4 bits": KVFormat.kivi(bits=4),
    "KIVI, 2 bits": KVFormat.kivi(bits=2),
}


class Setting:
    """A model, a cache of it filled with ``context`` tokens, and its times."""

    def __init__(self, model: Transformer, cache: Cache, filled: ConcatCache, context: int) -> None:
        self.model, self.cache, self.context = model, cache, context
        self.seq, self.seconds = cache.add(), []
        self._fill(filled)

    @torch.inference_mode()
    def _fill(self, filled: ConcatCache, chunk: int = 512) -> None:
        """The keys and values of the prefill, in chunks: what is coded does not depend on how tokens come."""
        for start in range(0, self.context, chunk):
            new = slice(start, min(start + chunk, self.context))
            with self.cache.step({self.seq: new.stop - new.start}) as view:
                for layer in range(self.cache.n_layers):
                    k_SKD, v_SKD = filled._read(layer, 0, self.context)
                    view.append(layer, k_SKD[new].to(self.cache.dtype), v_SKD[new].to(self.cache.dtype))

    @torch.inference_mode()
    def decode(self, steps: int) -> None:
        """A few tokens in a row, then as before."""
        token = 5
        start = time.perf_counter()
        for _ in range(steps):
            with self.cache.step({self.seq: 1}) as view:
                token = int(self.model(torch.tensor([token]), view).argmax())
        self.seconds.append((time.perf_counter() - start) / steps)
        self.cache.truncate(self.seq, self.context)


def settings_of(models: dict[str, Transformer], filled: ConcatCache, context: int, room: int) -> dict[str, Setting]:
    """All settings at one context, filled."""
    config, pages = filled.config, -(-(context + room) // PAGE)
    size = {"n_pages": pages, "page_size": PAGE}
    out = {
        name: Setting(model, PagedCache(config, dtype=model.dtype, **size), filled, context) for name, model in models.items()
    }
    fast = models["bf16"] if "bf16" in models else models["fp32"]
    for name, format in FORMATS.items():
        cache = PagedQuantizedCache(config, format=format, dtype=fast.dtype, max_sequences=1, **size)
        out[name] = Setting(fast, cache, filled, context)
    plain = PagedQuantizedCache(config, format=FORMATS["int8"], fused=False, dtype=fast.dtype, **size)
    out["int8, decoded first"] = Setting(fast, plain, filled, context)
    return out


@torch.inference_mode()
def prefill(model: Transformer, context: int) -> ConcatCache:
    """Keys and values of ``context`` tokens of the frozen texts."""
    ids = model.tokenizer.encode(all_text())[:context]
    assert len(ids) == context, f"the texts have only {len(ids)} tokens"
    cache = ConcatCache(model.config, dtype=model.dtype)
    seq = cache.add()
    for part in torch.tensor(ids).split(512):
        with cache.step({seq: len(part)}) as view:
            model.hidden(part, view)
    return cache


def main() -> int:
    """Measure, print, and store with ``--save``."""
    parser = argparse.ArgumentParser(description="Decode speed by cache format and context.")
    parser.add_argument("--save", action="store_true", help="store bench/results/quantized.json")
    parser.add_argument("--contexts", default="4096,8192", help="tokens of context; the last ones of 8,192 are decoded")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=6, help="tokens decoded in a row in each round")
    options = parser.parse_args()
    dtype = fast_dtype("cpu")[0]
    models = {"fp32": kvedu.load(dtype=torch.float32).pack()}
    if dtype == torch.bfloat16:
        models = {"bf16": kvedu.load(dtype=dtype).pack()} | models
    reference = next(iter(models))
    rows = []
    for asked in map(int, options.contexts.split(",")):
        context = min(asked, models[reference].config.max_positions - options.steps)
        filled = prefill(models[reference], context)
        settings = settings_of(models, filled, context, options.steps)
        for setting in settings.values():
            setting.decode(2)  # warm
            setting.seconds.clear()
        gc.collect()
        for _ in range(options.rounds):
            for setting in settings.values():
                setting.decode(options.steps)
        rows += [report(name, setting, settings[reference], asked) for name, setting in settings.items()]
        del settings, setting, filled
        gc.collect()
    print(f"\n{torch.get_num_threads()} threads; speed is against {reference} in the same rounds")
    if options.save:
        command = "python bench/bench_quantized.py" + "".join(f" {a}" for a in sys.argv[1:])
        values = {"reference": reference, "threads": torch.get_num_threads(), "page_size": PAGE, "rows": rows}
        print("stored in", save_row("quantized", values, command=command, folder=RESULTS).name)
    return 0


def report(name: str, setting: Setting, reference: Setting, asked: int) -> dict[str, float | int | str]:
    """One row: rate, ratio to the reference, bytes, and the bytes that a step reads."""
    cache, config = setting.cache, setting.model.config
    ratio = median(b / a for a, b in zip(setting.seconds, reference.seconds))
    weights = weights_read(config, setting.model.dtype.itemsize)
    row = {
        "format": name,
        "context": asked,
        "tokens_before": setting.context,
        "decode_tok_per_s": 1 / median(setting.seconds),
        "speed_against_reference": ratio,
        "cache_bytes": cache.nbytes,
        "weight_bytes_read": weights,
        "full_precision_bytes": kv_cache_bytes(config, setting.context, 1, 2),
    }
    print(
        f"{asked:6,} {name:22} {row['decode_tok_per_s']:7.1f} tok/s   x {ratio:5.2f}   cache {binary(cache.nbytes, 1):>10}",
        flush=True,
    )
    return row


if __name__ == "__main__":
    sys.exit(main())
