"""A step of a Llama over pages with everything between two matrix products in one kernel: nine launches a layer.

``Transformer`` leaves the operations apart, so that any cache can stand between them. Here the cache is pages, and
what meets in memory there meets in registers here: residual and norm, rotation and write, the two halves of the MLP's gate.
"""

from __future__ import annotations

from typing import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from kvedu.caches.contract import View
from kvedu.caches.paged import PagedCache, PagedView
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
    _check(model)
    h_BM, _ = _into(*fused_blocks(model, k_LPCKD, v_LPCKD, ids_B, positions_B, slots_B, layout), model.norm)
    return linear(h_BM, model.head.weight)


def fused_blocks(
    model: Transformer, k_LPCKD: Sequence[Tensor], v_LPCKD: Sequence[Tensor], ids_N: Tensor, positions_N: Tensor,
    slots_N: Tensor, layout: PagedLayout,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """All blocks of a model that is ``fusable``, for any step that a layout describes.

    Returns the stream before the last sum and what is to be added to it, ``[N, M]`` each.
    """
    config = model.config
    cos, sin = cos_sin(config.rope, positions_N, torch.float32)
    x_NM, added_NM = model.embed(ids_N), None
    for block, k_PCKD, v_PCKD in zip(model.layers, k_LPCKD, v_LPCKD):
        h_NM, x_NM = _into(x_NM, added_NM, block.attn_norm)
        qkv_NHD = linear(h_NM, block.attn.qkv.weight).view(-1, config.H + 2 * config.K, config.D)
        q_NHD, k_NKD, v_NKD = qkv_NHD.split((config.H, config.K, config.K), dim=1)
        if config.qk_norm:
            q_NHD, k_NKD = block.attn.q_norm(q_NHD), block.attn.k_norm(k_NKD)
        q_NHD = rope_write(q_NHD, k_NKD, v_NKD, cos, sin, k_PCKD, v_PCKD, slots_N)
        attend = paged_attention if takes(q_NHD, k_PCKD) else paged_attention_reference
        added_NM = linear(attend(q_NHD, k_PCKD, v_PCKD, layout).flatten(1), block.attn.out.weight)
        h_NM, x_NM = _into(x_NM, added_NM, block.mlp_norm)
        added_NM = linear(swiglu(linear(h_NM, block.mlp.gate_up.weight)), block.mlp.down.weight)
    return x_NM, added_NM


def hidden_over_pages(model: Transformer, ids_N: Tensor, view: View, *, fused: bool | None = None) -> Tensor:
    """``model.hidden(ids_N, view)``, by ``fused_blocks`` where that can be: prompts, chunks and trees over plain pages.

    ``fused`` None: on a GPU only; on a CPU packed weights are faster.
    """
    wanted = model.device.type != "cpu" if fused is None else fused
    if not (wanted and type(view) is PagedView and type(view.cache) is PagedCache and view.layouts.fits and fusable(model)):
        return model.hidden(ids_N, view)
    cache = view.cache
    x_NM, added_NM = fused_blocks(model, cache.k, cache.v, ids_N, view.positions, view.slot_mapping, view.layouts(None))
    view.appended.update(range(cache.n_layers))
    return x_NM + added_NM


def _into(x_NM: Tensor, added_NM: Tensor | None, norm: torch.nn.Module) -> tuple[Tensor, Tensor]:
    """The stream takes in what was added, and the next product reads it normalized."""
    if added_NM is None:
        return rmsnorm(x_NM, norm.weight, norm.eps), x_NM
    return add_rmsnorm(added_NM, x_NM, norm.weight, norm.eps)


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
