"""The blocks of a Llama with everything between two matrix products in one kernel: nine launches a layer over plain pages.

``Block`` leaves the operations apart, to be read and to be trained. Here what meets in memory there meets in registers: residual and
norm, the two halves of the MLP's gate, and in a view's ``meet`` rotation and write. On a GPU ``Transformer`` runs this way by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from kvedu.errors import ConfigError
from kvedu.kernels.launch import triton_wanted
from kvedu.kernels.paged_attention import PagedLayout, paged_attention, paged_attention_reference, takes
from kvedu.kernels.rmsnorm import add_rmsnorm, rmsnorm
from kvedu.kernels.rope import cos_sin
from kvedu.kernels.rope_write import rope_write
from kvedu.kernels.swiglu import swiglu
from kvedu.model.attention import Attention
from kvedu.model.layers import GateUp, Mlp

if TYPE_CHECKING:
    from kvedu.model.transformer import Block, Transformer


class Meets(Protocol):
    """What the blocks ask of a view (``caches/view``)."""

    def meet(self, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor) -> Tensor:
        """Rotate, take in, attend: ``[N, H, D]``."""


def fused_blocks(model: Transformer, x_NM: Tensor, view: Meets, taps: Sequence[int] = ()) -> tuple[Tensor, Tensor | None, dict[int, Tensor]]:
    """All blocks over any view; those of another make (latents, experts, keys of another layer) run as they are.

    Returns the stream before the last sum, what is to be added to it, ``[N, M]`` each (None: nothing), and what the blocks ``taps`` give,
    counted from 1. The result is the model's own, but for rounding; no gradients.
    """
    added_NM, outputs = None, {}
    for number, block in enumerate(model.layers, 1):
        if not _is_plain(block):
            x_NM, added_NM = block(_settled(x_NM, added_NM), view), None
        else:
            h_NM, x_NM = _into(x_NM, added_NM, block.attn_norm)
            added_NM = _attend(block.attn, h_NM, view)
            h_NM, x_NM = _into(x_NM, added_NM, block.mlp_norm)
            added_NM = block.mlp.down(_gated(block.mlp.gate_up, h_NM))
        if number in taps:
            x_NM, added_NM = _settled(x_NM, added_NM), None
            outputs[number] = x_NM
    return x_NM, added_NM, outputs


def _attend(attn: Attention, h_NM: Tensor, view: Meets) -> Tensor:
    H, K, D = attn.config.H, attn.config.K, attn.config.D
    q_NHD, k_NKD, v_NKD = attn.qkv(h_NM).view(-1, H + 2 * K, D).split((H, K, K), dim=1)
    if attn.q_norm is not None:
        q_NHD, k_NKD = attn.q_norm(q_NHD), attn.k_norm(k_NKD)
    return attn.out(view.meet(attn.slot, q_NHD, k_NKD, v_NKD).flatten(1))


def _gated(gate_up: GateUp, h_NM: Tensor) -> Tensor:
    """``gate_up(h)``; a packed one is a kernel of its own."""
    return gate_up(h_NM) if gate_up.packed is not None else swiglu(linear(h_NM, gate_up.weight, gate_up.bias))


def _into(x_NM: Tensor, added_NM: Tensor | None, norm: torch.nn.Module) -> tuple[Tensor, Tensor]:
    """The stream takes in what was added, and the next product reads it normalized."""
    if added_NM is None:
        return rmsnorm(x_NM, norm.weight, norm.eps), x_NM
    return add_rmsnorm(added_NM, x_NM, norm.weight, norm.eps)


def _settled(x_NM: Tensor, added_NM: Tensor | None) -> Tensor:
    return x_NM if added_NM is None else x_NM + added_NM


def _is_plain(block: Block) -> bool:
    """Whether nothing of a block is of another make, and nobody watches it or its parts by a hook."""
    attn, mlp = block.attn, block.mlp
    if not (type(attn) is Attention and attn.own and type(mlp) is Mlp):
        return False
    return not any(m._forward_hooks or m._forward_pre_hooks for m in (block, block.attn_norm, attn, attn.out, block.mlp_norm, mlp, mlp.gate_up, mlp.down))


def fused_hidden(model: Transformer, x_NM: Tensor, view: Meets, taps: Sequence[int] = ()) -> tuple[Tensor, dict[int, Tensor]]:
    """Output of the last block, ``[N, M]``, for what ``model.embed`` gave, and outputs of the blocks ``taps``."""
    x_NM, added_NM, outputs = fused_blocks(model, x_NM, view, taps)
    return _settled(x_NM, added_NM), outputs


def fuses(model: Transformer, choice: bool | None = None) -> bool:
    """Whether blocks run fused: where kernels run and nobody wants gradients, unless told. On a CPU packed weights are faster."""
    return triton_wanted(None, model.embed.weight) and not torch.is_grad_enabled() if choice is None else choice


@dataclass(frozen=True)
class LoosePages:
    """Pages without a cache, as ``fused_decode`` is given them."""

    k_LPCKD: Sequence[Tensor]
    v_LPCKD: Sequence[Tensor]
    turn: tuple[Tensor, Tensor]
    slots_N: Tensor
    layout: PagedLayout

    def meet(self, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor) -> Tensor:
        """Two launches; splits make it three."""
        pages = self.k_LPCKD[layer], self.v_LPCKD[layer]
        q_NHD = rope_write(q_NHD, k_NKD, v_NKD, *self.turn, *pages, self.slots_N)
        attend = paged_attention if takes(q_NHD, pages[0]) else paged_attention_reference
        return attend(q_NHD, *pages, self.layout)


def fused_decode(
    model: Transformer, k_LPCKD: Sequence[Tensor], v_LPCKD: Sequence[Tensor], ids_B: Tensor, positions_B: Tensor,
    slots_B: Tensor, layout: PagedLayout,
) -> Tensor:  # fmt: skip
    """Logits ``[B, V]`` of one token of each row, without a cache object; keys and values go into the pages, at ``slots_B``.

    ``layout`` says where each row's earlier tokens lie (``PagedLayout``), and that it brings one. For a model whose layers are all alike
    and need no view; else ``ConfigError``. Cost: ``analysis.flops``; a layer is nine launches where the kernels run, attention's
    splits make ten, norms of queries and keys a few more.
    """
    config = model.config
    odd = {
        "experts": any(config.has_experts(layer) for layer in range(config.L)),
        "latents": config.latent is not None,
        "windows": any(config.window(layer) for layer in range(config.L)),
        "layers that read another's keys": not all(config.reads_own(layer) for layer in range(config.L)),
        "frequencies that change with the length": config.rope.switch_length is not None,
    }
    if found := [name for name, there in odd.items() if there]:
        raise ConfigError(f"fused_decode runs a plain Llama; this model has {', '.join(found)}. Call the model itself, with a view of a cache")
    pages = LoosePages(k_LPCKD, v_LPCKD, cos_sin(config.rope, positions_B, torch.float32), slots_B, layout)
    x_BM, added_BM, _ = fused_blocks(model, model.embed(ids_B), pages)
    return model.head(_into(x_BM, added_BM, model.norm)[0])
