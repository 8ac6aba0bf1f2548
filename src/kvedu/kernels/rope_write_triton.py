"""Rotation of queries and keys and the write into pages as one kernel: a program owns some heads of one token."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kvedu.kernels.launch import KernelError, Launch, check_rows, power_of_two


@triton.jit
def copy_heads(x, to, h, x_h, to_h, count, FROM: tl.constexpr, TO: tl.constexpr, PADDED: tl.constexpr, write):
    """Elements FROM .. TO - 1 of some heads, as they are."""
    d = FROM + tl.arange(0, PADDED)
    mask = (h < count)[:, None] & (d < TO)[None, :]
    values = tl.load(x + h[:, None] * x_h + d[None, :], mask=mask, other=0.0)
    tl.store(to + h[:, None] * to_h + d[None, :], values.to(to.dtype.element_ty), mask=mask & write)


@triton.jit
def turn_heads(x, to, cos, sin, h, x_h, to_h, count, DIM: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr,
               REST: tl.constexpr, write):  # fmt: skip
    """Some heads turned: pairs (j, j + DIM/2) by the angle of j; elements past DIM pass."""
    j = tl.arange(0, HALF)
    mask = (h < count)[:, None] & (j < DIM // 2)[None, :]
    c = tl.load(cos + j, mask=j < DIM // 2, other=0.0).to(tl.float32)[None, :]
    s = tl.load(sin + DIM // 2 + j, mask=j < DIM // 2, other=0.0).to(tl.float32)[None, :]  # the unsigned half of the table
    low = tl.load(x + h[:, None] * x_h + j[None, :], mask=mask, other=0.0).to(tl.float32)
    high = tl.load(x + h[:, None] * x_h + j[None, :] + DIM // 2, mask=mask, other=0.0).to(tl.float32)
    tl.store(to + h[:, None] * to_h + j[None, :], (low * c - high * s).to(to.dtype.element_ty), mask=mask & write)
    tl.store(to + h[:, None] * to_h + j[None, :] + DIM // 2, (high * c + low * s).to(to.dtype.element_ty), mask=mask & write)
    if DIM < D:
        copy_heads(x, to, h, x_h, to_h, count, DIM, D, REST, write)


@triton.jit
def turn_and_write(q, k, v, cos, sin, k_pages, v_pages, slots, out, q_n, q_h, k_n, k_h, v_n, v_h, table_n, out_n, out_h,
                   kp_p, kp_c, kp_k, vp_p, vp_c, vp_k, H, K,
                   C: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, DIM: tl.constexpr, HALF: tl.constexpr,
                   REST: tl.constexpr, DVP: tl.constexpr, HEADS: tl.constexpr):  # fmt: skip
    """Program (token, part): the first parts are query heads, the others the same heads of key and value."""
    n = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    query_parts = tl.cdiv(H, HEADS)
    cos += n * table_n
    sin += n * table_n
    if part < query_parts:
        h = part.to(tl.int64) * HEADS + tl.arange(0, HEADS)  # wide, like slots: pages may be larger than 2**31 elements
        turn_heads(q + n * q_n, out + n * out_n, cos, sin, h, q_h, out_h, H, DIM, D, HALF, REST, True)
    else:
        h = (part - query_parts).to(tl.int64) * HEADS + tl.arange(0, HEADS)
        slot = tl.load(slots + n).to(tl.int64)
        write = slot >= 0
        page = tl.maximum(slot, 0) // C
        place = tl.maximum(slot, 0) % C
        turn_heads(k + n * k_n, k_pages + page * kp_p + place * kp_c, cos, sin, h, k_h, kp_k, K, DIM, D, HALF, REST, write)
        copy_heads(v + n * v_n, v_pages + page * vp_p + place * vp_c, h, v_h, vp_k, K, 0, DV, DVP, write)


def plan_rope_write(
    q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, cos: Tensor, sin: Tensor, k_PCKD: Tensor, v_PCKD: Tensor,
    slots_N: Tensor, out_NHD: Tensor, *, heads: int | None = None,
) -> Launch:  # fmt: skip
    """The one launch; ``heads`` of a program by rule: about 1,024 elements, so that each thread has a few to itself."""
    (N, H, D), (_, K, DV), (P, C), dim = q_NHD.shape, v_NKD.shape, k_PCKD.shape[:2], cos.shape[-1]
    check_rows(q=q_NHD, k=k_NKD, v=v_NKD, cos=cos, sin=sin, k_pages=k_PCKD, v_pages=v_PCKD, slots=slots_N)
    rows_fit = k_NKD.shape == (N, K, D) and len(v_NKD) == len(slots_N) == N
    if not rows_fit or k_PCKD.shape[2:] != (K, D) or v_PCKD.shape != (P, C, K, DV):
        raise KernelError(
            f"q {tuple(q_NHD.shape)}, k {tuple(k_NKD.shape)}, v {tuple(v_NKD.shape)}, pages {tuple(k_PCKD.shape)} and "
            f"{tuple(v_PCKD.shape)}, {len(slots_N)} slots do not fit: want [N, H, D], [N, K, D], [N, K, Dv], [P, C, K, D], N slots"
        )
    if cos.shape != sin.shape or cos.shape[0] != N or cos.stride(0) != sin.stride(0) or dim > D or dim % 2:
        raise KernelError(f"tables of cos_sin for {N} tokens and an even dim up to {D} are wanted, got {tuple(cos.shape)}")
    heads = heads or min(power_of_two(max(H, K)), max(1, 1024 // power_of_two(D)))
    args = dict(
        q=q_NHD, k=k_NKD, v=v_NKD, cos=cos, sin=sin, k_pages=k_PCKD, v_pages=v_PCKD, slots=slots_N, out=out_NHD,
        q_n=q_NHD.stride(0), q_h=q_NHD.stride(1), k_n=k_NKD.stride(0), k_h=k_NKD.stride(1), v_n=v_NKD.stride(0),
        v_h=v_NKD.stride(1), table_n=cos.stride(0), out_n=out_NHD.stride(0), out_h=out_NHD.stride(1),
        kp_p=k_PCKD.stride(0), kp_c=k_PCKD.stride(1), kp_k=k_PCKD.stride(2),
        vp_p=v_PCKD.stride(0), vp_c=v_PCKD.stride(1), vp_k=v_PCKD.stride(2), H=H, K=K,
    )  # fmt: skip
    constants = dict(
        C=C, D=D, DV=DV, DIM=dim, HALF=power_of_two(dim // 2), REST=power_of_two(max(D - dim, 1)), DVP=power_of_two(DV), HEADS=heads
    )
    return Launch(turn_and_write, (N, -(-H // heads) + -(-K // heads)), args, constants, warps=4, stages=1)
