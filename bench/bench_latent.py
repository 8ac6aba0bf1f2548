"""What a low-rank latent costs a model that was not trained with one: perplexity by the latent's width.

    python bench/bench_latent.py [--save] [--tokens 1024]

SmolLM2's keys and values, 384 elements a token and layer, squeezed into fewer (``compress.latent_from_gqa``):
calibrated on the frozen story, dialogue and code, measured on the frozen prose, which they have not seen. Beside it the
basis from the weights alone, and one that does not balance keys and values. Perplexity, not time: any machine will do.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

import kvedu
from kvedu import ConcatCache, Transformer, texts
from kvedu.book.rows import save_row
from kvedu.caches.contract import Cache
from kvedu.caches.low_rank import LowRankCache
from kvedu.compress.latent_from_gqa import latent_bases, share_kept, spread_of_weights, spread_over

ROOT = Path(__file__).resolve().parents[1]
CALIBRATION, MEASURED = ("story", "dialogue", "code"), "prose"
CALIBRATED, CHUNK = 2_048, 256
"""Tokens of each calibration text, its first ones; tokens of a step."""
WIDTHS = (320, 256, 192, 144, 96)


def main() -> None:
    """Measure each width and each way; print, and store with ``--save``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="store the row in bench/results")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens of the measured text")
    options = parser.parse_args()
    model = kvedu.load(dtype=torch.float32, device="cpu")
    config, encode = model.config, model.tokenizer.encode
    calibration = [token for name in CALIBRATION for token in encode(texts.read(name))[:CALIBRATED]]
    ids = encode(texts.read(MEASURED))[: options.tokens + 1]
    X, n_keys = config.K * 2 * config.D, config.K * config.D
    by_text, by_weights = spread_over(model, calibration), spread_of_weights(model)
    full = perplexity(model, ids, ConcatCache(config))
    print(f"full cache, {X} elements: perplexity {full:.3f}")
    cases: list[dict[str, Any]] = []
    ways = {"calibrated": (by_text, True, WIDTHS), "not balanced": (by_text, False, (192,)), "weights alone": (by_weights, True, (192,))}
    for way, (spreads, balance, widths) in ways.items():
        for width in widths:
            bases = latent_bases(model, spreads, width, balance=balance)
            kept = [share_kept(spread, basis, n_keys) for spread, basis in zip(by_text, bases)]
            keys, values = (sum(share[side] for share in kept) / len(kept) for side in (0, 1))
            got = perplexity(model, ids, LowRankCache(config, bases=bases))
            cases.append({
                "way": way, "width": width, "of_full_cache": width / X, "perplexity": got, "of_full_perplexity": got / full,
                "keys_variance_kept": keys, "values_variance_kept": values,
            })  # fmt: skip
            print(f"{way:14} {width:4} of {X}: {got:8.3f}, {got / full:.3f} of full; kept {keys:.4f} of keys, {values:.4f} of values", flush=True)
    values_: dict[str, Any] = {
        "full_width": X, "full_perplexity": full, "measured_text": MEASURED, "measured_sha256": texts.sha256(MEASURED),
        "measured_tokens": options.tokens, "calibration_texts": list(CALIBRATION), "calibration_tokens": len(calibration),
        "calibration_sha256": [texts.sha256(name) for name in CALIBRATION], "cases": cases,
    }  # fmt: skip
    if options.save:
        command = "python bench/bench_latent.py" + "".join(f" {argument}" for argument in sys.argv[1:])
        print("stored in", os.path.relpath(save_row("latent_from_gqa", values_, command=command, folder=ROOT / "bench" / "results")))


@torch.inference_mode()
def perplexity(model: Transformer, ids: list[int], cache: Cache) -> float:
    """Of a text read once, in chunks, through a cache."""
    seq, losses = cache.add(), []
    for start in range(0, len(ids) - 1, CHUNK):
        new = torch.tensor(ids[start : min(start + CHUNK, len(ids) - 1) + 1])
        with cache.step({seq: len(new) - 1}) as view:
            losses.append(cross_entropy(model(new[:-1], view), new[1:], reduction="none"))
    return math.exp(torch.cat(losses).mean(dtype=torch.float64))


if __name__ == "__main__":
    main()
