"""Attention of new queries over cached keys and values, grouped heads and all.

Query head h reads KV head ``h // G`` with ``G = H // K``: MHA is G = 1, MQA is K = 1.
Queries are the *last* tokens of their sequence, so the causal mask is aligned to the
bottom-right corner: of T queries over S keys, query i sees keys ``0 .. S - T + i``.
(A top-left mask, the default of several libraries, lets a lone decode query see key 0 only.)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from kvedu.units import Cost


def visible_causal(positions_T: Tensor, positions_S: Tensor, window: int | None = None) -> Tensor:
    """Who sees whom by position: boolean ``[T, S]``, True where the query may look at the key.

    A query sees keys at its own position and before; with a window W only the last W of
    them, itself included. ``window`` None or 0 means no window.
    """
    distance = positions_T[:, None] - positions_S[None, :]
    seen = distance >= 0
    return seen & (distance < window) if window else seen


def attention_reference(q_THD: Tensor, k_SKD: Tensor, v_SKD: Tensor, visible_TS: Tensor) -> Tensor:
    """The definition, one head at a time: softmax(q k / sqrt(D)) v over the visible keys, in fp32.

    ``q_THD`` queries of one sequence, ``k_SKD`` its keys, ``v_SKD`` its values (whose head
    size may differ from the keys'), ``visible_TS`` boolean. Returns ``[T, H, Dv]`` in q's dtype.
    Costs O(T S H D) and T S of memory per head. Every query must see at least one key.
    """
    T, H, D = q_THD.shape
    G = H // k_SKD.shape[1]
    hidden = ~visible_TS
    heads = []
    for h in range(H):
        k_SD, v_SD = k_SKD[:, h // G].to(torch.float32), v_SKD[:, h // G].to(torch.float32)
        scores_TS = q_THD[:, h].to(torch.float32) @ k_SD.T / math.sqrt(D)
        heads.append(torch.softmax(scores_TS.masked_fill(hidden, -torch.inf), dim=-1) @ v_SD)
    return torch.stack(heads, dim=1).to(q_THD.dtype)


def attention_grouped(
    q_BTHD: Tensor, k_BKSD: Tensor, v_BKSD: Tensor, mask_BTS: Tensor | None = None, *, causal: bool = False
) -> Tensor:
    """Attention of B sequences at once, without a copy of K or V per query head.

    ``q_BTHD`` are the new queries, ``k_BKSD`` and ``v_BKSD`` the cache in any strides whose last
    axis is dense; ``mask_BTS`` boolean or additive (None: everything is visible), or
    ``causal`` for T = S from scratch. Returns ``[B, T, H, D]``.

    A single query per sequence (decode) is packed so that the G queries of a group are
    G rows that meet one K and V: those are read once, not G times. Longer chunks keep a
    row per head and *expand* K and V along the group with stride 0.
    """
    B, T, H, D = q_BTHD.shape
    K = k_BKSD.shape[1]
    G = H // K
    k_BKSD, v_BKSD = k_BKSD.to(q_BTHD.dtype), v_BKSD.to(q_BTHD.dtype)  # no copy unless the cache is narrower
    if T == 1:
        q_BKGD = q_BTHD.view(B, K, G, D)
        mask = None if mask_BTS is None else mask_BTS[:, None]
        return scaled_dot_product_attention(q_BKGD, k_BKSD, v_BKSD, attn_mask=mask).reshape(B, 1, H, -1)
    outs = []
    for b in range(B):
        q_KGTD = q_BTHD[b].transpose(0, 1).unflatten(0, (K, G))
        if causal and blocks_pay(q_BTHD):
            o_KGTD = causal_in_blocks(q_KGTD, k_BKSD[b], v_BKSD[b])
        else:
            k_KGSD, v_KGSD = (x_BKSD[b][:, None].expand(-1, G, -1, -1) for x_BKSD in (k_BKSD, v_BKSD))
            mask = None if mask_BTS is None else mask_BTS[b]
            o_KGTD = scaled_dot_product_attention(q_KGTD, k_KGSD, v_KGSD, attn_mask=mask, is_causal=causal)
        outs.append(o_KGTD.flatten(0, 1).transpose(0, 1))
    return outs[0][None] if B == 1 else torch.stack(outs)


BLOCK = 64
"""Query rows per block of ``causal_in_blocks``: their scores stay in the cache of a core."""


def blocks_pay(q_BTHD: Tensor) -> bool:
    """Whether ``causal_in_blocks`` beats PyTorch's fused attention: long chunks in bf16 on a CPU (measured, x86)."""
    return q_BTHD.device.type == "cpu" and q_BTHD.dtype == torch.bfloat16 and q_BTHD.shape[1] >= 2 * BLOCK


def causal_in_blocks(q_KGTD: Tensor, k_KSD: Tensor, v_KSD: Tensor, block: int = BLOCK) -> Tensor:
    """Causal attention from scratch (T = S), a block of query rows at a time: ``[K, G, T, Dv]``.

    A block meets the keys up to its own end only, all queries of a group in one matrix
    product: half the scores are never made, and no mask is but for the corner. Scores are rounded to the
    queries' dtype, as in the plain product; memory is K G block S.
    """
    K, G, T, D = q_KGTD.shape
    q_KGTD = q_KGTD / math.sqrt(D)
    k_KDS = k_KSD.transpose(-1, -2)
    future = torch.ones(block, block, dtype=torch.bool, device=q_KGTD.device).triu(1)
    outs = []
    for start in range(0, T, block):
        stop = min(start + block, T)
        n = stop - start
        scores = torch.bmm(q_KGTD[:, :, start:stop].reshape(K, G * n, D), k_KDS[:, :, :stop]).view(K, G, n, stop)
        scores[..., start:].masked_fill_(future[:n, :n], -torch.inf)
        weights = torch.softmax(scores, dim=-1).view(K, G * n, stop)
        outs.append(torch.bmm(weights, v_KSD[:, :stop]).view(K, G, n, -1))
    return torch.cat(outs, dim=2)


def cost(
    new_tokens: int, cached_tokens: int, heads: int, kv_heads: int, head_dim: int, bytes_per_element: int = 2
) -> Cost:
    """Work of attention for T new tokens after S cached ones of one sequence, causal pairs only.

    4 D FLOPs for each (query, visible key, head): 2 D for the score, 2 D for the value.
    K and V of all S + T tokens are read once, queries read and outputs written once.
    """
    pairs = new_tokens * cached_tokens + new_tokens * (new_tokens + 1) / 2
    kv = 2 * (cached_tokens + new_tokens) * kv_heads * head_dim
    q = new_tokens * heads * head_dim
    return Cost(4 * head_dim * heads * pairs, (kv + q) * bytes_per_element, q * bytes_per_element)
