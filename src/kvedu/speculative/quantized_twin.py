"""Self-speculation: the target's own weights in 4 bits as its draft. No second model, no training."""

from __future__ import annotations

import torch

from kvedu.kernels.int4_linear import Int4Linear
from kvedu.model.layers import GateUp, Linear, RMSNorm
from kvedu.model.transformer import Transformer


def quantized_twin(model: Transformer) -> Transformer:
    """The same model with every linear map's weight in 4 bits (``kernels/int4_linear``); embedding and norms are shared.

    It agrees with its twin most of the time, and a pass of it reads a third of the bytes: as a ``DraftModel`` it trades many
    accepted guesses for dear ones. It wins only where a pass is bound by reading weights, since nothing else of it is
    smaller. Self-speculation with a quantized draft: QSpec (Zhao et al. 2024, 2410.11305); ML-SpecQD (2503.13565).
    Its own bytes come on top of the target's: 0.63 bytes a weight.

    >>> DraftModel(quantized_twin(model), k=2)              # doctest: +SKIP
    """
    with torch.device("meta"):
        twin = Transformer(model.config)
    for mine, theirs in zip(twin.modules(), model.modules()):
        if isinstance(mine, Linear):
            weight, bias = theirs.plain_weight().detach(), None if theirs.bias is None else theirs.bias.detach()
            mine.packed, mine.weight, mine.bias = Int4Linear(weight, bias, gated=isinstance(mine, GateUp)), None, theirs.bias
        elif isinstance(mine, RMSNorm):
            mine.weight = theirs.weight
    twin.embed, twin.tokenizer = model.embed, model.tokenizer
    return twin.train(model.training)
