"""Where the training of MTP modules begins: the best linear guess of the target's next feature, found in closed form.

Fresh modules would spend most of their short training on what least squares say at once: what the target's last block
makes of the next token, from that token's embedding and the output before it. The decoder layers begin with no say.
"""

from __future__ import annotations

import torch
from head_features import Features
from head_training import Teacher
from head_unroll import rms
from torch import Tensor, nn
from torch.nn.functional import embedding

from kvedu.speculative.mtp_heads import MtpHeads

RIDGE, SCALE, SEED = 0.003, 0.03, 1


@torch.no_grad()
def begin_mtp(heads: MtpHeads, teacher: Teacher, features: Features) -> None:
    """Set every module by the same regression on the text."""
    generator, weight_IM = torch.Generator().manual_seed(SEED), regression(teacher, features)
    for step in heads.steps:
        begin_step(step, teacher, weight_IM, generator)


def begin_step(step: nn.Module, teacher: Teacher, weight_IM: Tensor, generator: torch.Generator) -> None:
    """Set ``fc`` to the regression's weight ``[2M, M]`` and the layer to random weights whose output is 0."""
    M = weight_IM.shape[1]
    step.fc.weight[:, :M] = weight_IM[:M].T
    step.fc.weight[:, M:] = weight_IM[M:].T / teacher.norm_M
    step.norm.weight.copy_(teacher.norm_M)
    for name, p in step.block.named_parameters():
        if p.ndim == 1:
            p.fill_(1.0)
        elif name.endswith(("out.weight", "down.weight")):
            p.zero_()
        else:
            p.normal_(0, SCALE, generator=generator)


def regression(teacher: Teacher, features: Features) -> Tensor:
    """Least squares ``[2M, M]`` from (embedding of token i + 1, output at token i) to the output at token i + 1; all of unit scale."""
    M, eps = features.width, teacher.eps
    one_M, count = torch.ones(M), 0
    squares_II, products_IM = torch.zeros(2 * M, 2 * M), torch.zeros(2 * M, M)
    for b in range(len(features)):
        T = int(features.lengths_B[b])
        hidden_TM = rms(features.hidden(b)[:T], one_M, eps)
        embedded_TM = rms(embedding(features.ids_BT[b, :T].long(), teacher.embed_VM), one_M, eps)
        x_TI = torch.cat((embedded_TM[1:], hidden_TM[:-1]), dim=-1).to(torch.bfloat16)
        squares_II += (x_TI.T @ x_TI).float()
        products_IM += (x_TI.T @ hidden_TM[1:].to(torch.bfloat16)).float()
        count += T - 1
    return torch.linalg.solve(squares_II + RIDGE * count * torch.eye(2 * M), products_IM)
