"""Compile a planned launch for a chip that is not here, and read what it would take of it.

    python -c "…"     # in a process without TRITON_INTERPRET; no GPU and no driver is needed

Registers, stack and shared memory are read from the machine code by the ``cuobjdump`` in Triton's wheel: without a GPU
the compiler's own notes are empty. Compiled code is kept in Triton's cache, so a second look is quick.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kvedu.kernels.launch import KernelError, Launch, interpreted

TYPES = {
    torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64", torch.uint8: "u8", torch.int8: "i8", torch.bool: "i1",
    torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.float8_e4m3fn: "fp8e4nv", torch.float8_e5m2: "fp8e5",
}  # fmt: skip


@dataclass(frozen=True)
class Resources:
    """What a program takes: registers of a thread, bytes of stack of a thread (spills and arrays), bytes of shared memory."""

    registers: int
    stack: int
    shared: int
    assembly: str
    """PTX: to look for the instructions that were meant."""


def compile_ahead(launch: Launch, capability: int) -> Resources:
    """Compile for NVIDIA compute capability 75, 80, 90, 100 … Tensors may lie on ``meta``: only dtype and strides count.

    Raises ``KernelError`` in a process whose Triton interprets. Cost: a second or several, once.
    """
    done = compiled(launch, capability)
    registers, stack, static = _usage(done.asm["cubin"])
    return Resources(registers, stack, max(static, done.metadata.shared), done.asm["ptx"])


def compiled(launch: Launch, capability: int) -> Any:
    """The same as Triton's own object: ``asm["cubin"]`` is the machine code. Errors as ``compile_ahead``."""
    if interpreted():
        raise KernelError("Triton interprets in this process; compile in one without TRITON_INTERPRET")
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature, constants, attributes = described(launch)
    source = ASTSource(launch.kernel, signature, constants, attributes)
    options = {"num_warps": launch.warps, "num_stages": launch.stages}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def described(launch: Launch) -> tuple[dict[str, str], dict[str, Any], dict[tuple[int, ...], list[list[Any]]]]:
    """A launch as the compiler sees it: types, constants, and which arguments are multiples of 16.

    The same choices as at a real launch: an integer 1 is a constant (unless the kernel forbids it), pointers are aligned.
    """
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    plain = {param.num for param in getattr(launch.kernel, "params", ()) if param.do_not_specialize}
    for i, name in enumerate(launch.kernel.arg_names):
        if name in launch.constants or launch.args[name] is None:
            signature[name], constants[name] = "constexpr", launch.constants.get(name)
            continue
        value = launch.args[name]
        if isinstance(value, Tensor):
            signature[name] = "*" + TYPES[value.dtype]
            attributes[i,] = [["tt.divisibility", 16]]
        elif isinstance(value, float):
            signature[name] = "fp32"
        elif i in plain:
            signature[name] = "i32"
        elif value == 1:
            signature[name], constants[name] = "constexpr", 1
        else:
            signature[name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            if value % 16 == 0:
                attributes[i,] = [["tt.divisibility", 16]]
    return signature, constants, attributes


def _usage(cubin: bytes) -> tuple[int, int, int]:
    """Registers, stack and static shared memory from the machine code's own table."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([str(tool), "-res-usage", file.name], capture_output=True, text=True, check=True)
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", done.stdout)
    if found is None:
        raise KernelError(f"cuobjdump says nothing about registers: {done.stdout[:200]}")
    return int(found[1]), int(found[2]), int(found[3])
