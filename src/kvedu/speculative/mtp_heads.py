"""Multi-token prediction: a chain of modules, each a decoder layer that goes one token further than the one before."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kvedu.errors import RequestError
from kvedu.model.layers import Linear, RMSNorm
from kvedu.model.transformer import Transformer
from kvedu.speculative.eagle_head import HeadShape, next_token_layer


class MtpHeads(nn.Module):
    """``k`` modules; module d (from 0) makes, of feature d at token i and token i + d + 1, feature d + 1 at token i.

    Feature 0 is the target's last output, normed; feature d foretells token i + d + 1. Every module has weights and a
    cache of its own (EAGLE has one for all depths). Embedding and output head are the target's.
    DeepSeek-V3 (2412.19437), section 2.2; Gloeckle et al. 2024 (2404.19737) for heads without the chain.
    """

    def __init__(self, shape: HeadShape, k: int) -> None:
        super().__init__()
        if k < 1 or shape.taps != (shape.config.L,):
            raise RequestError(f"MTP is 1 or more modules on the last block, {shape.config.L}; got {k} on {list(shape.taps)}")
        self.shape = shape
        self.norm = RMSNorm(shape.config.M, shape.config.norm_eps)
        self.steps = nn.ModuleList(next_token_layer(shape.layer) for _ in range(k))

    def pack(self) -> MtpHeads:
        """Lay the weights out for this CPU, where that pays (see ``Transformer.pack``)."""
        for module in self.modules():
            if isinstance(module, Linear) and module.packed is None:
                module.pack()
        return self


def fresh_mtp(shape: HeadShape, target: Transformer, k: int, seed: int = 0) -> MtpHeads:
    """Modules to be trained: each layer begins as the target's last one."""
    heads, generator = MtpHeads(shape, k).to(torch.float32), torch.Generator().manual_seed(seed)
    own, M = dict(target.layers[-1].named_parameters()), shape.config.M
    with torch.no_grad():
        heads.norm.weight.copy_(target.norm.weight)
        for step in heads.steps:
            for name, p in step.block.named_parameters():
                p.copy_(own[name])
            step.norm.weight.copy_(target.norm.weight)
            step.embed_norm.weight.fill_(1.0)
            step.fc.weight.normal_(0, 0.03, generator=generator)
            step.fc.weight[:, M:] += 0.3 * torch.eye(M)
    return heads
