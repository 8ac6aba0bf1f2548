"""Device and number format of a model, chosen by what the hardware has, each choice with its reason."""

from __future__ import annotations

import torch


def choose_device() -> torch.device:
    """The first CUDA device if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def choose_dtype(device: torch.device | str) -> tuple[torch.dtype, str]:
    """The dtype to load a model in, and why.

    fp32 on the CPU (exact work); on a GPU bf16 from compute capability 8.0, fp16 on 7.x
    (whose bf16 is emulated, whatever the support query says), fp32 below.
    """
    device = torch.device(device)
    if device.type != "cuda":
        return torch.float32, f"fp32 on {device.type}: exact work, comparable token for token"
    major, minor = torch.cuda.get_device_capability(device)
    have = f"compute capability {major}.{minor}"
    if major >= 8:
        return torch.bfloat16, f"bf16: {have} has it in hardware"
    if major == 7:
        return torch.float16, f"fp16: {have} has no bf16 in hardware"
    return torch.float32, f"fp32: {have} has no fast 16-bit matrix units"


def fast_dtype(device: torch.device | str) -> tuple[torch.dtype, str]:
    """The dtype that runs fastest where small rounding differences are allowed, and why.

    On a GPU as ``choose_dtype``. On a CPU bf16 (half the bytes to read per token) if it has
    bf16 instructions, else fp32: emulated bf16 is slower than fp32.
    """
    device = torch.device(device)
    if device.type != "cpu":
        return choose_dtype(device)
    units = cpu_bf16_units()
    if units:
        return torch.bfloat16, f"bf16: this CPU has {' and '.join(units)}"
    return torch.float32, "fp32: this CPU has no bf16 instructions that PyTorch uses"


def cpu_bf16_units() -> tuple[str, ...]:
    """The CPU's bf16 instruction sets (``bf16`` is Arm's), as PyTorch's own query reports them; empty if it cannot tell."""
    query = getattr(torch.cpu, "get_capabilities", None)
    if query is not None:
        found = query()
        return tuple(name for name in ("amx_bf16", "avx512_bf16", "bf16", "sve_bf16") if found.get(name))
    older = {"avx512_bf16": "_is_avx512_bf16_supported", "amx_bf16": "_is_amx_tile_supported"}
    return tuple(name for name, ask in older.items() if getattr(torch.cpu, ask, lambda: False)())
