"""RMSNorm: scale a vector to unit root mean square, then by a learned weight (Zhang and Sennrich 2019)."""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.kernels import native
from kvedu.units import Cost


def rmsnorm_reference(x: Tensor, weight_M: Tensor, eps: float) -> Tensor:
    """The definition over the last axis, in fp32: ``x / sqrt(mean(x**2) + eps) * weight``; result in x's dtype."""
    x32 = x.to(torch.float32)
    scale = torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + eps)
    return (x32 * scale * weight_M.to(torch.float32)).to(x.dtype)


def rmsnorm(x: Tensor, weight_M: Tensor, eps: float) -> Tensor:
    """The fast path, also fp32 inside. One fused kernel on a GPU; on a CPU ``native/rows.cpp`` where it runs.

    Elsewhere on a CPU PyTorch's own is eight small kernels, and a detour is quicker: x followed by -x
    has mean 0 and variance mean(x**2), so LayerNorm, one fused kernel, divides by just the right number.
    """
    M = x.shape[-1]
    if x.device.type != "cpu":
        return torch.nn.functional.rms_norm(x, (M,), weight_M, eps)
    if native.usable(x, weight_M) and x.is_contiguous():
        out = torch.empty_like(x)
        native.library().kvedu_rmsnorm(
            x.dtype is torch.float32, x.data_ptr(), weight_M.data_ptr(), out.data_ptr(), x.numel() // M, M, eps,
            torch.get_num_threads(),
        )  # fmt: skip
        return out
    both = torch.layer_norm(torch.cat((x, -x), dim=-1), (2 * M,), eps=eps)
    return both[..., :M] * weight_M


def cost(tokens: int, width: int, bytes_per_element: int = 2) -> Cost:
    """4 FLOPs an element; the input is read and the output written once, the weight read once."""
    elements = tokens * width
    return Cost(4 * elements, (elements + width) * bytes_per_element, elements * bytes_per_element)
