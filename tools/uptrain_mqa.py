"""Convert SmolLM2's 3 KV heads to 1, train a little, and store what it cost and what came back.

    python tools/uptrain_mqa.py [--work FOLDER]

Mean-pools the KV heads (Ainslie et al. 2023), measures perplexity and recall before and after, then trains the
attention layers in two stages: each layer to imitate the original's, then all of them to give the original's
next-token distribution. Writes ``bench/results/uptrain_mqa.json``. About 20 minutes on two cores; what is done is
kept in FOLDER (``_build/uptrain_mqa``), so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import os
import statistics
import textwrap
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from unfinished import close_work, open_work

import kvedu
from kvedu import texts
from kvedu.book.rows import save_row
from kvedu.caches.none import NoCache
from kvedu.compress.imitate import Imitated, Schedule, imitate
from kvedu.compress.perplexity import token_losses
from kvedu.compress.pool_heads import first, fresh, mean, pool_kv_heads
from kvedu.compress.recall import score_answers
from kvedu.model.sampling import Sampling
from kvedu.model.transformer import Transformer

ROOT = Path(__file__).resolve().parents[1]
SEED = 3
LENGTH = 256
"""Tokens of a training sequence."""
EVALUATED = 512
"""Tokens of each frozen text that perplexity is measured on, its first ones."""
SUBJECTS = (
    "a lighthouse keeper", "how bread rises", "a lost letter", "why the sky is blue", "a train that never stops",
    "planting a garden", "the history of clocks", "two neighbors who argue", "how a bridge is built", "a quiet robot",
    "learning to swim", "a market at night", "how bees find their way", "an honest thief", "the first snow",
    "keeping a diary", "how a computer adds", "a voyage by canoe", "choosing a book", "a mountain village",
)  # fmt: skip


def main() -> None:
    """Train what is not trained yet, measure, store the row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=ROOT / "_build" / "uptrain_mqa")
    work = open_work(parser.parse_args().work, __file__)
    start = time.perf_counter()
    original = kvedu.load(dtype=torch.float32, device="cpu")
    values: dict[str, Any] = {"kv_heads_before": original.config.K, "kv_heads_after": 1}
    ids_BT, sources = training_ids(original, work / "sequences.pt")
    print(f"training on {ids_BT.numel():,} tokens", flush=True)
    model, errors = imitated(original, ids_BT, work / "imitate.pt")
    scores = _Scores(work / "scores.json")
    scores.add("original", lambda: original)
    for name, pool in (("mean", mean), ("first", first), ("fresh", fresh(SEED))):
        scores.add(name, lambda pool=pool: pool_kv_heads(original, 1, pool))
    scores.add("imitated", lambda: model)
    distilled(original, model, ids_BT, work / "distill.pt")
    scores.add("distilled", lambda: model)

    values |= {
        "scores": scores.all,
        "training_tokens": ids_BT.numel(),
        "training_sequence_tokens": LENGTH,
        "training_sources": sources,
        "layer_error_before": errors[0],
        "layer_error_after": errors[1],
        "trained": "qkv and out of all attention layers",
        "evaluated_tokens_per_text": EVALUATED,
        "evaluated_texts_sha256": {name: texts.sha256(name) for name in texts.names()},
        "seed": SEED,
        "seconds_this_run": round(time.perf_counter() - start),
    }
    (ROOT / "bench" / "results").mkdir(parents=True, exist_ok=True)
    path = save_row("uptrain_mqa", values, command="python tools/uptrain_mqa.py", folder=ROOT / "bench" / "results")
    close_work(work)
    print(f"stored in {path.relative_to(ROOT)}")


class _Scores:
    """Perplexity and recall of each stage, kept in a file as soon as they are measured."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.all: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}

    def add(self, name: str, make_model: Any) -> None:
        if name not in self.all:
            self.all[name] = measure(make_model())
            _replace(self.path, lambda path: path.write_text(json.dumps(self.all, indent=1)))
        print(f"{name}: perplexity {self.all[name]['perplexity']:,.1f}, recall {self.all[name]['recall']:.2f}", flush=True)


def measure(model: Transformer) -> dict[str, Any]:
    """Perplexity on the frozen texts, each by itself and all together, and recall of the recall set."""
    losses = {
        name: token_losses(model, model.tokenizer.encode(texts.read(name))[:EVALUATED], window=512, stride=256)
        for name in texts.names()
        if name != "recall"
    }
    answers = score_answers(model, texts.recall_items())
    return {
        "perplexity": torch.cat(list(losses.values())).mean(dtype=torch.float64).exp().item(),
        "perplexity_by_text": {name: loss.mean(dtype=torch.float64).exp().item() for name, loss in losses.items()},
        "recall": sum(answer.right for answer in answers) / len(answers),
        "recall_questions": len(answers),
        "recall_loss_nats": statistics.fmean(answer.loss for answer in answers),
    }


def training_ids(model: Transformer, path: Path) -> tuple[Tensor, dict[str, Any]]:
    """Sequences ``[B, T]`` to train on and where they are from: Python's own reference and sources, and sampled text.

    None of it is among the texts that are measured on. The Python texts are those of the running version; all are named
    by hash.
    """
    if path.is_file():
        saved = torch.load(path)
        return saved["ids_BT"], saved["sources"]
    import argparse as parsing
    from pydoc_data.topics import topics

    reference = "\n\n".join(topics[name] for name in sorted(topics))
    code = "\n\n".join(inspect.getsource(module) for module in (textwrap, statistics, parsing))
    prompts = [[{"role": "user", "content": f"Write about {subject}."}] for subject in SUBJECTS]
    samplings = [Sampling(temperature=1.0, seed=SEED + i) for i in range(len(prompts))]
    sampled = kvedu.generate(model, prompts, max_new_tokens=160, sampling=samplings)
    parts = {
        "python_reference": (model.tokenizer.encode(reference), 20),
        "python_sources": (model.tokenizer.encode(code), 6),
        "sampled": ([i for done in sampled for i in done.token_ids], 10),
    }
    sequences, sources = [], {}
    for name, (ids, wanted) in parts.items():
        count = min(wanted, len(ids) // LENGTH)
        chosen = torch.linspace(0, len(ids) // LENGTH - 1, count).long()  # spread over the whole text
        used_BT = torch.tensor(ids[: len(ids) // LENGTH * LENGTH]).view(-1, LENGTH)[chosen]
        sequences.append(used_BT)
        sources[name] = {"tokens": used_BT.numel(), "ids_sha256": hashlib.sha256(used_BT.numpy().tobytes()).hexdigest()}
    saved = {"ids_BT": torch.cat(sequences), "sources": sources}
    _replace(path, lambda path: torch.save(saved, path))
    return saved["ids_BT"], sources


def imitated(original: Transformer, ids_BT: Tensor, path: Path) -> tuple[Transformer, tuple[float, float]]:
    """The pooled model with each attention layer trained; and the layers' mean error before and after."""
    model = pool_kv_heads(original, 1)
    saved = torch.load(path, weights_only=False) if path.is_file() else {"errors": [], "state": {}, "done": None}
    model.load_state_dict(saved["state"], strict=False)
    for done in imitate(original, model, ids_BT, Schedule(epochs=5), saved["done"]):
        saved["errors"].append((done.before, done.after))
        saved |= {"state": _trained(model), "done": done}
        _replace(path, lambda path: torch.save(saved, path))
        print(f"layer {done.layer}: error {done.before:.3f} → {done.after:.3f}", flush=True)
    befores, afters = zip(*saved["errors"])
    return model, (statistics.fmean(befores), statistics.fmean(afters))


def distilled(original: Transformer, model: Transformer, ids_BT: Tensor, path: Path, rate: float = 5e-4) -> None:
    """One pass over the sequences, attention trained by the divergence from the original's next-token distribution."""
    saved = torch.load(path) if path.is_file() else {"step": 0, "state": {}, "optimizer": None}
    model.load_state_dict(saved["state"], strict=False)
    model.requires_grad_(False)
    parameters = [p for block in model.layers for p in (block.attn.qkv.weight, block.attn.out.weight)]
    for p in parameters:
        p.requires_grad_(True)
    optimizer = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)
    if saved["optimizer"]:
        optimizer.load_state_dict(saved["optimizer"])
    order = torch.randperm(len(ids_BT), generator=torch.Generator().manual_seed(SEED))
    for step in range(saved["step"], len(order)):
        for group in optimizer.param_groups:
            group["lr"] = rate * min((step + 1) / 5, 1 - step / len(order))
        ids_N = ids_BT[order[step]]
        with torch.no_grad():
            wanted_NV = torch.log_softmax(_logits(original, ids_N), -1)
        given_NV = torch.log_softmax(_logits(model, ids_N), -1)
        loss = torch.nn.functional.kl_div(given_NV, wanted_NV, log_target=True, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: divergence {loss.item():.3f} nats", flush=True)
        if step % 8 == 7 or step == len(order) - 1:
            saved = {"step": step + 1, "state": _trained(model), "optimizer": optimizer.state_dict()}
            _replace(path, lambda path: torch.save(saved, path))


def _logits(model: Transformer, ids_N: Tensor) -> Tensor:
    cache = NoCache(model.config, dtype=model.dtype)
    with cache.step({cache.add(): len(ids_N)}) as view:
        return model(ids_N, view)


def _trained(model: Transformer) -> dict[str, Tensor]:
    return {name: weight.detach() for name, weight in model.named_parameters() if ".attn." in name}


def _replace(path: Path, write: Any) -> None:
    """Write beside the file and move it there, so that a stop in between leaves the old one."""
    beside = path.with_suffix(".new")
    write(beside)
    os.replace(beside, path)


if __name__ == "__main__":
    main()
