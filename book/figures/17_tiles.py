"""Scores of three heads of SmolLM2 over a line of text, in base 2 as the kernel has them."""

from typing import Any

import torch

import kvedu
from kvedu import ConcatCache, texts
from kvedu.caches.dense import DenseView
from kvedu.kernels.launch import LOG2E
from kvedu.viz import tiles

HEADS = ((2, 3), (12, 0), (20, 7))
TOKENS = 45


def run() -> dict[str, Any]:
    """The figure's data."""
    model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu")
    config, ids = model.config, model.tokenizer.encode(texts.read("story"))[:TOKENS]
    queries: dict[int, torch.Tensor] = {}

    class Watching(DenseView):
        """Keeps each layer's queries."""

        def attend(self, layer: int, q_NHD: torch.Tensor) -> torch.Tensor:
            queries[layer] = q_NHD.clone()
            return super().attend(layer, q_NHD)

    cache = ConcatCache(config)
    cache.view = Watching
    seq = cache.add()
    with torch.inference_mode(), cache.step({seq: TOKENS}) as view:
        model.hidden(torch.tensor(ids), view)
        keys = {layer: view.gather(layer, seq)[0] for layer, _ in HEADS}
    heads = []
    for layer, head in HEADS:
        scores_TS = queries[layer][:, head] @ keys[layer][:, head // config.G].T * (config.D**-0.5 * LOG2E)
        heads.append({"name": f"layer {layer}, head {head}", "scores": [[round(x, 2) for x in row[: t + 1]] for t, row in enumerate(scores_TS.tolist())]})
    words = [model.tokenizer.decode([token]) for token in ids]
    return tiles.data(heads, words, config.G, config.D) | {"source": "SmolLM2-135M-Instruct on the frozen story"}
