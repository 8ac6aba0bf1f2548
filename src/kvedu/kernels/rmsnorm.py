"""RMSNorm: scale a vector to unit root mean square, then by a learned weight (Zhang and Sennrich 2019)."""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.kernels import native
from kvedu.kernels.launch import KernelError, graded, triton_wanted
from kvedu.units import Cost


def rmsnorm_reference(x: Tensor, weight_M: Tensor, eps: float) -> Tensor:
    """The definition over the last axis, in fp32: ``x / sqrt(mean(x**2) + eps) * weight``; result in x's dtype."""
    x32 = x.to(torch.float32)
    scale = torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + eps)
    return (x32 * scale * weight_M.to(torch.float32)).to(x.dtype)


def rmsnorm(
    x: Tensor, weight_M: Tensor, eps: float, *, triton: bool | None = None, block: int | None = None
) -> Tensor:
    """The fast path, also fp32 inside. One fused kernel on a GPU; on a CPU ``native/rows.cpp`` where it runs.

    Elsewhere on a CPU PyTorch's own is eight small kernels, and a detour is quicker: x followed by -x
    has mean 0 and variance mean(x**2), so LayerNorm, one fused kernel, divides by just the right number.
    ``triton`` and ``block`` as in ``add_rmsnorm``.
    """
    M = x.shape[-1]
    if not graded(x, weight_M) and triton_wanted(triton, x):
        return _by_triton(x.reshape(-1, M), None, weight_M, eps, block)[0].view(x.shape)
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


def add_rmsnorm_reference(x_NM: Tensor, residual_NM: Tensor, weight_M: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The residual stream takes x in, and the next layer reads it normalized: (norm of the sum, the sum)."""
    total_NM = x_NM + residual_NM
    return rmsnorm_reference(total_NM, weight_M, eps), total_NM


def add_rmsnorm(
    x_NM: Tensor, residual_NM: Tensor, weight_M: Tensor, eps: float, *, triton: bool | None = None, block: int | None = None
) -> tuple[Tensor, Tensor]:
    """``add_rmsnorm_reference``, on a GPU in one kernel: what is added is normalized while it is in registers.

    ``[N, M]`` each (or more leading axes), the last axis dense. The sum is rounded to x's dtype before it is normalized, as if it had been
    stored and read. ``triton``: as everywhere (None: on a GPU). ``block``: elements of a tile, a power of two; rows that
    are longer are read twice.
    """
    if not graded(x_NM, residual_NM, weight_M) and triton_wanted(triton, x_NM):
        if x_NM.shape != residual_NM.shape:
            raise KernelError(f"x {tuple(x_NM.shape)} and residual {tuple(residual_NM.shape)} do not fit; both want one shape")
        rows_NM, added_NM = (x if x.dim() == 2 else x.reshape(-1, x.shape[-1]) for x in (x_NM, residual_NM))
        out_NM, total_NM = _by_triton(rows_NM, added_NM, weight_M, eps, block)
        return out_NM.view(x_NM.shape), total_NM.view(x_NM.shape)
    total_NM = x_NM + residual_NM
    return rmsnorm(total_NM, weight_M, eps, triton=False), total_NM


def _by_triton(
    x_NM: Tensor, residual_NM: Tensor | None, weight_M: Tensor, eps: float, block: int | None
) -> tuple[Tensor, Tensor]:
    from kvedu.kernels.rmsnorm_triton import plan_rmsnorm

    out_NM = torch.empty(x_NM.shape, dtype=x_NM.dtype, device=x_NM.device)
    total_NM = None if residual_NM is None else torch.empty_like(out_NM)
    plan_rmsnorm(x_NM, residual_NM, weight_M, eps, out_NM, total_NM, block).run()
    return out_NM, out_NM if total_NM is None else total_NM


def cost(tokens: int, width: int, bytes_per_element: int = 2) -> Cost:
    """4 FLOPs an element; the input is read and the output written once, the weight read once."""
    elements = tokens * width
    return Cost(4 * elements, (elements + width) * bytes_per_element, elements * bytes_per_element)


def add_cost(tokens: int, width: int, bytes_per_element: int = 2) -> Cost:
    """Of ``add_rmsnorm``: x and residual are read once, sum and norm written once, the weight read once; 5 FLOPs an element."""
    elements = tokens * width
    return Cost(5 * elements, (2 * elements + width) * bytes_per_element, 2 * elements * bytes_per_element)
