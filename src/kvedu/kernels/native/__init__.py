"""CPU kernels in C++, compiled the first time they are wanted, where a compiler and the CPU's bf16 dot product are.

The sources stand beside this file and say what they compute; ``panel_linear``, ``paged_attention``,
``rmsnorm`` and ``rope`` call them, and keep a PyTorch path for every machine without them. They take
bf16 and fp32 on an x86-64 CPU with AVX512-BF16 (Zen 4, Cooper Lake and later), on Linux with GCC 11 or later.
``KVEDU_NATIVE=0`` in the environment leaves them alone.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from kvedu.folders import cache_folder

NEEDED = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_bf16", "fma")
FLAGS = (
    "-O3", "-std=c++17", "-fPIC", "-shared", "-fopenmp", "-mfma", "-mtune=native",
    "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512bf16",
)  # fmt: skip

_P, _I, _N, _F = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float
SIGNATURES = {
    "kvedu_linear": [_N] + [_P] * 5 + [_I] * 3 + [_N] * 2,
    "kvedu_attention": [_N] + [_P] * 7 + [_I] * 11 + [_F, _N],
    "kvedu_quantized_attention": [_N] + [_P] * 6 + [_I] * 2 + [_P] * 4 + [_I] * 10 + [_F, _N],
    "kvedu_hadamard": [_N] + [_P] * 2 + [_I] * 3 + [_N],
    "kvedu_quantize": [_N] + [_P] * 2 + [_I, _P, _P, _P] + [_I] * 4 + [_N],
    "kvedu_rmsnorm": [_N] + [_P] * 3 + [_I] * 2 + [_F, _N],
    "kvedu_rotate": [_N] + [_P] * 2 + [_I] * 2 + [_P] * 4 + [_I] * 5 + [_N],
    "kvedu_write": [_N] + [_P] * 2 + [_I] * 2 + [_P] * 3 + [_I] * 7 + [_N],
}


class Unavailable(Exception):
    """Why there are no native kernels here, in one sentence."""


@functools.cache
def library() -> ctypes.CDLL | Unavailable:
    """The compiled kernels, or the reason why there are none. Some 5 s the first time on a machine, 1 ms later."""
    try:
        return _load(_compiled())
    except Unavailable as reason:
        return reason


def usable(*tensors: Tensor) -> bool:
    """Whether the kernels can take these tensors: all bf16 or all fp32, on the CPU, rows dense, no gradient asked for."""
    graded, dtype = torch.is_grad_enabled(), tensors[0].dtype
    if dtype is not torch.bfloat16 and dtype is not torch.float32:
        return False
    for x in tensors:
        if x.dtype is not dtype or not x.is_cpu or x.stride(-1) != 1 or (graded and x.requires_grad):
            return False
    return not isinstance(library(), Unavailable)


def cpu_features() -> frozenset[str]:
    """What the CPU says it can do, in the kernel's names; empty where nobody says."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), ()))


def flags() -> tuple[str, ...]:
    """What the compiler is told: ``FLAGS``, and what this CPU has beyond ``NEEDED``."""
    return FLAGS + (("-mavx512vbmi",) if "avx512vbmi" in cpu_features() else ())


def sources() -> list[Path]:
    """The C++ files, in order."""
    return sorted(Path(__file__).parent.glob("*.cpp"))


def _compiled() -> Path:
    """The shared library of these sources, compiled into the cache folder unless it is there."""
    if os.environ.get("KVEDU_NATIVE") == "0":
        raise Unavailable("KVEDU_NATIVE=0 is set")
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        raise Unavailable(f"they are written for Linux on x86-64, this is {sys.platform} on {platform.machine()}")
    if missing := [name for name in NEEDED if name not in cpu_features()]:
        raise Unavailable(f"this CPU has no {missing[0]}")
    compiler = shutil.which(os.environ.get("CXX") or "g++")
    if compiler is None:
        raise Unavailable("no C++ compiler is found; install g++")
    files = [*sources(), *sorted(Path(__file__).parent.glob("*.h"))]
    text = b"".join(path.read_bytes() for path in files) + repr((flags(), compiler, sorted(cpu_features()))).encode()
    target = cache_folder() / "native" / f"{hashlib.sha256(text).hexdigest()[:16]}.so"
    if not target.is_file():
        _compile(compiler, target)
    return target


def _compile(compiler: str, target: Path) -> None:
    """All sources into one library, beside the target and then in one rename: two processes may do it at once."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            fresh = Path(folder) / target.name
            done = subprocess.run(
                [compiler, *flags(), "-o", str(fresh), *map(str, sources())], capture_output=True, text=True, timeout=300
            )
            if done.returncode:
                error = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-200:])
                raise Unavailable(f"{compiler} does not compile them: {error}")
            os.replace(fresh, target)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"they could not be compiled into {target.parent}: {error}") from None


def _load(path: Path) -> ctypes.CDLL:
    """Open the library and tell ctypes what its functions take.

    GNU's OpenMP is asked for by the name under which PyTorch has loaded its own, so both
    share one team of threads.
    """
    try:
        opened = ctypes.CDLL(str(path))
    except OSError as error:
        raise Unavailable(f"{path} cannot be loaded: {error}") from None
    for name, arguments in SIGNATURES.items():
        function = getattr(opened, name)
        function.argtypes, function.restype = arguments, None
    return opened
