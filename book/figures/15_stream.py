"""A page of prose through caches of 64 tokens: windows with and without sinks, heavy hitters, tokens drawn by lot."""

import math
from typing import Any

import torch
from torch.nn.functional import cross_entropy

import kvedu
from kvedu import ConcatCache, EvictingCache, StreamingCache, texts
from kvedu.caches import scores
from kvedu.caches.contract import Cache
from kvedu.model.attention_maps import attention_maps
from kvedu.model.transformer import Transformer
from kvedu.viz import stream

TOKENS, BUDGET, CHUNK = 400, 64, 8
HEADS = ((13, 0), (18, 2), (5, 1))  # (layer, KV head)
SINKS = (0, 1, 2, 4, 8)


@torch.inference_mode()
def read(model: Transformer, ids: list[int], cache: Cache, look: Any = None) -> list[float]:
    """Loss of each token but the first; ``look(cache, seq)`` after each step."""
    seq, losses, target = cache.add(), [], torch.tensor(ids)
    for start in range(0, len(ids), CHUNK):
        part = target[start : start + CHUNK]
        with cache.step({seq: len(part)}) as view:
            logits_NV = model(part, view)
        after = target[start + 1 : start + 1 + CHUNK]
        losses += cross_entropy(logits_NV[: len(after)].float(), after, reduction="none").tolist()
        if look:
            look(cache, seq)
    return losses


def evicted(model: Transformer, ids: list[int], name: str, score: scores.Score, recent: int) -> dict[str, Any]:
    """A policy of ``caches.scores``: its losses, and what the figure's heads held."""
    held: list[list[list[list[int]]]] = [[] for _ in HEADS]

    def look(cache: EvictingCache, seq: int) -> None:
        for kept, (layer, head) in zip(held, HEADS):
            kept.append(stream.ranges(cache.positions(seq, layer)[:, head].tolist()))

    losses = read(model, ids, EvictingCache(model.config, budget=BUDGET, score=score, recent=recent), look)
    return stream.policy(name, losses, BUDGET, held=held)


def run() -> dict[str, Any]:
    """The figure's data, from the real model."""
    model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu").pack()
    config, tokenizer = model.config, model.tokenizer
    ids = tokenizer.encode(texts.read("prose"))[:TOKENS]
    full = read(model, ids, ConcatCache(config))
    windows = []
    for sinks in SINKS:
        losses = read(model, ids, StreamingCache(config, window=BUDGET - sinks, sinks=sinks))
        name = f"{sinks or 'no'} sink{'s' * (sinks != 1)}, the last {BUDGET - sinks}"
        windows.append(stream.policy(name, losses, BUDGET, sinks=sinks))
    policies = [
        *windows,
        evicted(model, ids, f"heavy hitters (H2O), the last {BUDGET // 2}", scores.h2o, BUDGET // 2),
        evicted(model, ids, f"drawn by lot, the last {BUDGET // 2}", scores.random, BUDGET // 2),
    ]
    last = torch.arange(CHUNK - 1, TOKENS, CHUNK)
    maps_LHTS = attention_maps(model, ids, keep=lambda w_HTS: w_HTS[:, last])
    heads = [
        (f"layer {layer}, KV head {head}", [stream.looks(w_S) for w_S in maps_LHTS[layer].unflatten(0, (config.K, -1))[head].mean(0)])
        for layer, head in HEADS
    ]

    def after(losses: list[float]) -> float:
        """Perplexity of what comes once a window without sinks has dropped token 0."""
        return math.exp(sum(losses[BUDGET:]) / len(losses[BUDGET:]))

    none, one, whole = (after(losses) for losses in (windows[0]["loss"], windows[1]["loss"], full))
    back = (math.log(none) - math.log(one)) / (math.log(none) - math.log(whole))
    choices = ["Next to nothing: it is one token of the 64", "About a third of it", "More than half of it"]
    predict = {
        "question": f"A cache that holds the last {BUDGET} tokens reads a page. Once it drops tokens, perplexity is {none:.0f}; with a full "
        f"cache it would be {whole:.0f}. Now it keeps the very first token for ever, and one recent token less. How much of the added loss does that take back?",
        "choices": choices,
        "answer": 2 if back > 0.5 else 1 if back > 0.2 else 0,
        "because": f"Perplexity {one:.0f} instead of {none:.0f}: {100 * back:.0f} % of what dropping tokens had added, in nats. Look at the bar on token 0.",
    }
    tokens = [tokenizer.decode([i]) for i in ids]
    return stream.data(tokens, CHUNK, full, policies, heads, predict=predict, step=TOKENS // CHUNK // 2)
