"""A head's two circuits as matrices, from the weights alone: QK says where it looks, OV what it brings.

For one head the score between two tokens is ``x_t QK x_s`` and what it adds to token t is the sum of
``weight_ts x_s OV``, where x is a token's row of the residual stream, scaled to unit root mean square. A cache holds the
halves of both that belong to the past: ``x_s W_K`` (rotated) and ``x_s W_V``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.errors import ConfigError
from kvedu.kernels.rope import cos_sin, rotate
from kvedu.model.attention import Attention
from kvedu.model.transformer import Block, Transformer


def qk_matrix(model: Transformer, layer: int, head: int, distance: int = 0) -> Tensor:
    """``[M, M]`` in fp32: ``x_t @ QK @ x_s`` is the head's score for a key ``distance`` tokens back, before the softmax.

    x are rows of the stream before the layer, divided by their root mean square (``rmsnorm_reference`` with a weight of ones);
    the norm's weight, 1 / sqrt(D) and the rotation are in the matrix. RoPE makes it another matrix for every distance, and the same
    wherever the two tokens stand. Its rank is D at most. Cost: 2 M**2 D FLOPs. Source: Elhage et al. 2021, A Mathematical
    Framework for Transformer Circuits; our D is their d_head.

    Raises ``ConfigError`` where scores are no bilinear form: biases, or norms of queries and keys.
    """
    block = _block(model, layer, head)
    if block.attn.q_norm is not None or block.attn.qkv.bias is not None:
        raise ConfigError(
            "the scores of this model are no bilinear form of two tokens: its queries and keys "
            f"{'are normed' if block.attn.q_norm is not None else 'have biases'}. A model without either, such as SmolLM2 or Llama, has QK matrices"
        )
    D = model.config.D
    q_MD, k_MD = _reads(model, block, head), _reads(model, block, model.config.H + head // model.config.G)
    turn = cos_sin(model.config.rope, torch.tensor([distance], device=model.device), torch.float32)
    still = cos_sin(model.config.rope, torch.tensor([0], device=model.device), torch.float32)
    q_MD, k_MD = (rotate(x_MD[:, None], *at)[:, 0] for x_MD, at in ((q_MD, turn), (k_MD, still)))
    return q_MD @ k_MD.T / D**0.5


def ov_matrix(model: Transformer, layer: int, head: int) -> Tensor:
    """``[M, M]`` in fp32: ``x_s @ OV`` is what the head adds for a token that it looks at with weight 1.

    x is the row of the stream before the layer, divided by its root mean square; the norm's weight is
    in the matrix. Heads of a group share W_V, which is what is cached, and differ in W_O. Biases of V or
    the output are added apart and are no part of it. Its rank is D at most. Cost: 2 M**2 D FLOPs.
    Source: Elhage et al. 2021.
    """
    block, config = _block(model, layer, head), model.config
    v_MD = _reads(model, block, config.H + config.K + head // config.G)
    o_DM = _plain(block.attn.out.plain_weight())[:, head * config.D : (head + 1) * config.D].T
    return v_MD @ o_DM


def _reads(model: Transformer, block: Block, place: int) -> Tensor:
    """What one head (of queries, keys or values: its place among all of qkv's) reads from the stream: ``[M, D]``, norm included."""
    attn: Attention = block.attn
    D = model.config.D
    w_DM = _plain(attn.qkv.plain_weight())[place * D : (place + 1) * D]
    return (w_DM * block.attn_norm.weight.detach().to(torch.float32)).T


def _plain(weight: Tensor) -> Tensor:
    return weight.detach().to(torch.float32)


def _block(model: Transformer, layer: int, head: int) -> Block:
    config = model.config
    if not 0 <= layer < config.L or not 0 <= head < config.H:
        raise ConfigError(f"there is no layer {layer}, head {head}: layers are 0 .. {config.L - 1}, query heads 0 .. {config.H - 1}")
    return model.layers[layer]
