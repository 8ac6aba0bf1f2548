"""Attention of other libraries over the same pages, where they are installed: for the table of ``bench_kernels``."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Callable

import torch
from torch import Tensor


Call = Callable[[], Any]


def peers_of(q_NHD: Tensor, k_PCKD: Tensor, v_PCKD: Tensor, tables_BJ: Tensor, new: int, old: int) -> dict[str, Callable[[], Call]]:
    """Library -> what makes the call, of those that are here and take these pages: B sequences of ``new`` tokens after ``old``.

    Nothing is imported before a call is made: a library that is here may be broken.
    """
    if q_NHD.device.type != "cuda":
        return {}
    found: dict[str, Callable[[], Call]] = {}
    if find_spec("flash_attn") and k_PCKD.shape[1] % 256 == 0:  # its pages come in multiples of 256
        found["flash-attn"] = lambda: _flash_attn(q_NHD, k_PCKD, v_PCKD, tables_BJ, new, old)
    if find_spec("flashinfer") and new == 1:
        found["FlashInfer"] = lambda: _flashinfer(q_NHD, k_PCKD, v_PCKD, tables_BJ, old + 1)
    return found


def _flash_attn(q_NHD: Tensor, k_PCKD: Tensor, v_PCKD: Tensor, tables_BJ: Tensor, new: int, old: int) -> Call:
    from flash_attn import flash_attn_with_kvcache

    q_BTHD = q_NHD.unflatten(0, (len(tables_BJ), new))
    lengths_B = torch.full((len(tables_BJ),), old + new, dtype=torch.int32, device=q_NHD.device)
    return lambda: flash_attn_with_kvcache(q_BTHD, k_PCKD, v_PCKD, cache_seqlens=lengths_B, block_table=tables_BJ, causal=True)


def _flashinfer(q_NHD: Tensor, k_PCKD: Tensor, v_PCKD: Tensor, tables_BJ: Tensor, length: int) -> Call:
    import flashinfer

    (B, J), (_, C, K, D) = tables_BJ.shape, k_PCKD.shape
    ints = {"dtype": torch.int32, "device": q_NHD.device}
    room = torch.empty(128 * 2**20, dtype=torch.uint8, device=q_NHD.device)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(room, "NHD")
    ends, last = torch.arange(0, B * J + 1, J, **ints), torch.full((B,), (length - 1) % C + 1, **ints)
    wrapper.plan(ends, tables_BJ.flatten(), last, q_NHD.shape[1], K, D, C, q_data_type=q_NHD.dtype, kv_data_type=k_PCKD.dtype)
    return lambda: wrapper.run(q_NHD, (k_PCKD, v_PCKD))
