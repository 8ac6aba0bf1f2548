"""A decode step of a Llama over pages with everything between two matrix products in one kernel: nine launches a layer.

``Transformer`` leaves the operations apart, so that any cache can stand between them. Here the cache is pages, each row
brings one token, and what meets in memory there meets in registers here: residual and norm, rotation and write,
the two halves of the MLP's gate.
"""

from __future__ import annotations

from typing import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from kvedu.errors import ConfigError
from kvedu.kernels.paged_attention import PagedLayout, paged_attention, paged_attention_reference, takes
from kvedu.kernels.rmsnorm import add_rmsnorm, rmsnorm
from kvedu.kernels.rope import cos_sin
from kvedu.kernels.rope_write import rope_write
from kvedu.kernels.swiglu import swiglu
from kvedu.model.transformer import Transformer


def fused_decode(
    model: Transformer, k_LPCKD: Sequence[Tensor], v_LPCKD: Sequence[Tensor], ids_B: Tensor, positions_B: Tensor,
    slots_B: Tensor, layout: PagedLayout,
) -> Tensor:  # fmt: skip
    """Logits ``[B, V]`` of one token of each row; its keys and values go into the pages, at ``slots_B``.

    ``layout`` says where each row's earlier tokens lie (``PagedLayout``), and that it brings one. The model has plain weights (not
    packed), no biases, no experts, no windows; else ``ConfigError`` (``fusable`` asks). The result is the model's own, but for rounding.
    Cost: ``analysis.flops``; a layer is nine launches where the kernels run, attention's splits make ten, norms of queries and keys
    a few more.
    """
    config = model.config
    _check(model)
    cos, sin = cos_sin(config.rope, positions_B, torch.float32)
    x_BM, added_BM = model.embed(ids_B), None
    for block, k_PCKD, v_PCKD in zip(model.layers, k_LPCKD, v_LPCKD):
        h_BM, x_BM = _into(x_BM, added_BM, block.attn_norm)
        qkv_BHD = linear(h_BM, block.attn.qkv.weight).view(-1, config.H + 2 * config.K, config.D)
        q_BHD, k_BKD, v_BKD = qkv_BHD.split((config.H, config.K, config.K), dim=1)
        if config.qk_norm:
            q_BHD, k_BKD = block.attn.q_norm(q_BHD), block.attn.k_norm(k_BKD)
        q_BHD = rope_write(q_BHD, k_BKD, v_BKD, cos, sin, k_PCKD, v_PCKD, slots_B)
        attend = paged_attention if takes(q_BHD, k_PCKD) else paged_attention_reference
        added_BM = linear(attend(q_BHD, k_PCKD, v_PCKD, layout).flatten(1), block.attn.out.weight)
        h_BM, x_BM = _into(x_BM, added_BM, block.mlp_norm)
        added_BM = linear(swiglu(linear(h_BM, block.mlp.gate_up.weight)), block.mlp.down.weight)
    h_BM, _ = _into(x_BM, added_BM, model.norm)
    return linear(h_BM, model.head.weight)


def _into(x_BM: Tensor, added_BM: Tensor | None, norm: torch.nn.Module) -> tuple[Tensor, Tensor]:
    """The stream takes in what was added, and the next product reads it normalized."""
    if added_BM is None:
        return rmsnorm(x_BM, norm.weight, norm.eps), x_BM
    return add_rmsnorm(added_BM, x_BM, norm.weight, norm.eps)


def fusable(model: Transformer) -> bool:
    """Whether ``fused_decode`` runs this model."""
    return not _odd(model)


def _check(model: Transformer) -> None:
    if found := _odd(model):
        raise ConfigError(f"fused_decode runs a plain Llama; this model has {', '.join(found)}. Call the model itself, or unpack() it")


def _odd(model: Transformer) -> list[str]:
    """What this model has that a plain Llama has not."""
    config = model.config
    odd = {
        "biases": config.qkv_bias or config.out_bias or config.mlp_bias,
        "experts": any(config.has_experts(layer) for layer in range(config.L)),
        "latents": config.latent is not None,
        "windows": any(config.window(layer) for layer in range(config.L)),
        "layers that read another's keys": not all(config.reads_own(layer) for layer in range(config.L)),
        "frequencies that change with the length": config.rope.switch_length is not None,
        "packed weights": model.head.weight is None or model.layers[0].attn.qkv.weight is None,
    }
    return [name for name, there in odd.items() if there]
