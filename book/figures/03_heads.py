"""SmolLM2 with 9, 3 and 1 KV heads: one layer's attention over a sentence; perplexities from the stored row."""

from typing import Any

import torch
from torch import Tensor

import kvedu
from kvedu import texts
from kvedu.book.rows import load_row
from kvedu.caches.concat import ConcatCache
from kvedu.caches.dense import DenseView
from kvedu.compress.perplexity import perplexity
from kvedu.compress.pool_heads import pool_kv_heads
from kvedu.compress.repeat_heads import repeat_kv_heads
from kvedu.model.transformer import Transformer
from kvedu.viz import heads

SENTENCE = "The old map was wrong, but the river was where it had always been."
LAYER = 12


class Watched(DenseView):
    """Keeps one layer's attention weights [H, T, S]."""

    weights: Tensor

    def attend(self, layer: int, q_NHD: Tensor) -> Tensor:
        if layer == LAYER:
            k_SKD, _, positions_S = self.gather(layer, self.rows[0].seq)
            k_SHD = k_SKD.repeat_interleave(q_NHD.shape[1] // k_SKD.shape[1], dim=1)
            scores_HTS = torch.einsum("thd,shd->hts", q_NHD, k_SHD) / q_NHD.shape[-1] ** 0.5
            later_TS = torch.arange(len(k_SHD)) > self.positions[:, None]
            Watched.weights = scores_HTS.masked_fill(later_TS, -torch.inf).softmax(-1)
        return super().attend(layer, q_NHD)


def attention(model: Transformer, ids: list[int]) -> list[list[list[float]]]:
    """Weights [H][T][T], two decimals."""
    cache = ConcatCache(model.config)
    cache.view = Watched
    with torch.no_grad(), cache.step({cache.add(): len(ids)}) as view:
        model(torch.tensor(ids), view, view.last_rows)
    return [[[round(w, 2) for w in row[: t + 1]] for t, row in enumerate(head)] for head in Watched.weights.tolist()]


def run() -> dict[str, Any]:
    """The figure's data."""
    model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu")
    row = load_row("uptrain_mqa")
    scores = row["scores"]
    ids = model.tokenizer.encode(SENTENCE)
    kinds = (
        (repeat_kv_heads(model), scores["original"]["perplexity"], None),  # equal up to rounding: see repeat_kv_heads
        (model, scores["original"]["perplexity"], None),
        (pool_kv_heads(model, 1), scores["mean"]["perplexity"], scores["distilled"]["perplexity"]),
    )
    check_equal(kinds[0][0], model)
    measured = [
        {"kv_heads": one.config.K, "perplexity": ppl, "trained": trained, "attention": attention(one, ids)}
        for one, ppl, trained in kinds
    ]
    H, K = model.config.H, model.config.K
    predict = {
        "question": f"Now the other way: each of the model's {K} KV heads is copied {H // K} times, so that every query head "
        f"has one of its own. The cache grows {H // K}-fold. Its perplexity, {measured[1]['perplexity']:.1f} now:",
        "choices": ["gets better", "stays as it is", "gets worse"],
        "answer": 1,
        "because": "Every query head meets the keys that it met before. Sharing is what was trained; undoing it brings "
        "nothing back. Merging the heads further is another matter: try K = 1.",
    }
    tokens = [model.tokenizer.decode([i]) for i in ids]
    data = heads.data(measured, tokens, LAYER, predict=predict, model="SmolLM2-135M", kv=3)
    return data | {"source": f"perplexities: {row.cite()}; attention"}


def check_equal(repeated: Transformer, model: Transformer) -> None:
    """Copies of heads change nothing: their perplexity is the model's own, measured here on a page."""
    text = texts.read("prose")[:1500]
    ids = model.tokenizer.encode(text)
    assert abs(perplexity(repeated, ids) / perplexity(model, ids) - 1) < 1e-4
