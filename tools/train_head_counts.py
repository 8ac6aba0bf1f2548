"""Train the same small model with MHA, GQA and MQA from scratch, and store what each reaches on text it has not seen.

    python tools/train_head_counts.py [--work FOLDER]

Pooling heads of a trained model says what a conversion costs. This says what fewer KV heads cost a model that never
had more: one byte-level model of three layers, 6 query heads and 6, 2 or 1 KV heads, trained on Python's own language
reference, two seeds each. Writes ``bench/results/train_head_counts.json``. About 15 minutes on two cores; finished
runs are kept in FOLDER (``_build/train_head_counts``), so that one that was stopped goes on with the next.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import time
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from unfinished import close_work, open_work

from kvedu.book.rows import save_row
from kvedu.caches.none import NoCache
from kvedu.config import ModelConfig
from kvedu.model.transformer import Transformer
from kvedu.rope_config import RopeConfig

ROOT = Path(__file__).resolve().parents[1]
KV_HEADS = (6, 2, 1)
SEEDS = (0, 1)
STEPS, BATCH, LENGTH, RATE = 1200, 12, 128, 4e-3
HELD_OUT = 64
"""Sequences that are measured on and never trained on, from the end of the text."""


def main() -> None:
    """Train what is not trained yet, store the row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=ROOT / "_build" / "train_head_counts")
    work = open_work(parser.parse_args().work, __file__)
    text, train_BT, held_BT = bytes_of_the_reference()
    runs = []
    for seed in SEEDS:
        for kv_heads in KV_HEADS:
            path = work / f"{kv_heads}-{seed}.json"
            if not path.is_file():
                run = train(kv_heads, seed, train_BT, held_BT)
                path.with_suffix(".new").write_text(json.dumps(run))
                os.replace(path.with_suffix(".new"), path)
            runs.append(json.loads(path.read_text()))
            print(runs[-1], flush=True)
    mean = {k: sum(run["loss_nats_per_byte"] for run in runs if run["kv_heads"] == k) / len(SEEDS) for k in KV_HEADS}
    spread = max(abs(run["loss_nats_per_byte"] - mean[run["kv_heads"]]) for run in runs)
    values = {
        "runs": runs,
        "query_heads": config(1).H,
        "kv_heads": list(KV_HEADS),
        "loss_nats_per_byte": [mean[k] for k in KV_HEADS],
        "perplexity_per_byte": [math.exp(mean[k]) for k in KV_HEADS],
        "largest_distance_of_a_seed_nats": spread,
        "trained_bytes": STEPS * BATCH * LENGTH,
        "held_out_bytes": held_BT.numel(),
        "text_sha256": hashlib.sha256(text).hexdigest(),
        "steps": STEPS, "batch": BATCH, "length": LENGTH, "rate": RATE, "seeds": list(SEEDS),
    }  # fmt: skip
    folder = ROOT / "bench" / "results"
    folder.mkdir(parents=True, exist_ok=True)
    path = save_row("train_head_counts", values, command="python tools/train_head_counts.py", folder=folder)
    close_work(work)
    print(f"stored in {path.relative_to(ROOT)}")


def config(kv_heads: int) -> ModelConfig:
    """The small model; nothing but the KV heads differs."""
    return ModelConfig(
        n_layers=3, width=96, n_heads=6, n_kv_heads=kv_heads, head_dim=16, mlp_width=256, vocab_size=256,
        max_positions=LENGTH, rope=RopeConfig(dim=16, max_positions=LENGTH), tied=True,
    )  # fmt: skip


def bytes_of_the_reference() -> tuple[bytes, Tensor, Tensor]:
    """The text, sequences ``[B, T + 1]`` to train on, and those held out."""
    from pydoc_data.topics import topics

    text = "\n\n".join(topics[name] for name in sorted(topics)).encode()
    cut = len(text) // (LENGTH + 1) * (LENGTH + 1)
    all_BT = torch.frombuffer(bytearray(text[:cut]), dtype=torch.uint8).long().view(-1, LENGTH + 1)
    return text, all_BT[:-HELD_OUT], all_BT[-HELD_OUT:]


def train(kv_heads: int, seed: int, train_BT: Tensor, held_BT: Tensor) -> dict:
    """One model from its first weights to its loss on the held-out bytes."""
    start = time.perf_counter()
    generator = torch.Generator().manual_seed(seed)
    model = Transformer(config(kv_heads))
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.fill_(1.0) if "norm" in name else p.normal_(0.0, 0.03, generator=generator)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min((step + 1) / 20, 1 - step / STEPS)
        rows = torch.randint(0, len(train_BT), (BATCH,), generator=generator)
        optimizer.zero_grad()
        loss(model, train_BT[rows]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        held = sum(loss(model, rows).item() for rows in held_BT.split(16)) / (len(held_BT) / 16)
    return {
        "kv_heads": kv_heads, "seed": seed, "loss_nats_per_byte": held,
        "parameters": sum(p.numel() for p in model.parameters()), "seconds": round(time.perf_counter() - start),
    }  # fmt: skip


def loss(model: Transformer, rows_BT: Tensor) -> Tensor:
    """Mean negative log-likelihood of each byte but the first, in nats."""
    cache = NoCache(model.config)
    with cache.step({cache.add(): LENGTH for _ in rows_BT}) as view:
        return cross_entropy(model(rows_BT[:, :-1].flatten(), view), rows_BT[:, 1:].flatten())


if __name__ == "__main__":
    main()
