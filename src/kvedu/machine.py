"""Measure this machine: memory bandwidth and matrix-product FLOP/s, to hold predictions against.

A datasheet says what a machine could do; these few seconds say what it does now, with this
PyTorch, these threads and whatever else is running. Measure in the same run that quotes a share.
"""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import subprocess
import time
from pathlib import Path
from typing import Callable

import torch

from kvedu.analysis.roofline import Hardware
from kvedu.errors import KveduError
from kvedu.units import GiB, MiB

TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def measure(
    device: str | torch.device = "cpu",
    n_bytes: int | None = None,
    matmul_size: int | None = None,
    dtypes: tuple[str, ...] | None = None,
    repeats: int = 5,
) -> Hardware:
    """This machine as a ``Hardware`` row named "this machine": read bandwidth, FLOP/s, memory, date.

    ``n_bytes`` (256 MiB on a CPU, 1 GiB elsewhere) must be several times the last-level cache;
    ``matmul_size`` is the side of the square matrices (1,024 or 8,192). ``dtypes`` are those that
    the device computes in hardware: fp32 and bf16 on a CPU, fp32 and fp16 on a GPU, bf16 from compute
    capability 8.0. About 2 s. Raises ``KveduError`` for sizes below one element.

    >>> row = measure(n_bytes=4 * MiB, matmul_size=64, repeats=2)
    >>> row.name, sorted(row.flops), row.bandwidth > 0
    ('this machine', ['bf16', 'fp32'], True)
    """
    device = torch.device(device)
    on_cpu = device.type == "cpu"
    n_bytes = (256 * MiB if on_cpu else GiB) if n_bytes is None else n_bytes
    size = (1024 if on_cpu else 8192) if matmul_size is None else matmul_size
    facts = describe(device)
    return Hardware(
        name="this machine",
        flops={name: matmul_flops(name, size, device, repeats) for name in dtypes or _native_dtypes(device)},
        bandwidth=read_bandwidth(n_bytes, device, repeats),
        memory=memory_bytes(device),
        source=f"measured: {facts['device']}, {_counted(facts['cores'], 'core')}, {_counted(facts['threads'], 'thread')}, torch {facts['torch']}",
        date=facts["date"],
    )


def _counted(number: str | int | None, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def read_bandwidth(n_bytes: int, device: str | torch.device = "cpu", repeats: int = 5) -> float:
    """Bytes/s of reading a buffer once, by the better of two readers (a sum, a dot product of its halves)."""
    whole = _touched(n_bytes, device)
    half = whole.numel() // 2
    left, right = whole[:half], whole[half : 2 * half]
    seconds = min(
        _median_seconds(whole.sum, whole.device, repeats),
        _median_seconds(lambda: torch.dot(left, right), whole.device, repeats),
    )
    return n_bytes / seconds


def copy_bandwidth(n_bytes: int, device: str | torch.device = "cpu", repeats: int = 5) -> float:
    """Bytes/s of copying a buffer, counting bytes read plus bytes written: 2 n_bytes per copy."""
    source, target = _touched(n_bytes, device), _touched(n_bytes, device)
    return 2 * n_bytes / _median_seconds(lambda: target.copy_(source), source.device, repeats)


def matmul_flops(dtype: str, size: int = 1024, device: str | torch.device = "cpu", repeats: int = 5) -> float:
    """FLOP/s of a size x size matrix product, 2 size^3 FLOPs. Raises ``KveduError`` for an unknown dtype."""
    if dtype not in TORCH_DTYPES:
        raise KveduError(f"matrix products are measured in {', '.join(TORCH_DTYPES)}, not {dtype!r}")
    if size < 1:
        raise KveduError(f"a matrix has a side of at least 1, not {size}")
    a, b = (torch.randn(size, size, device=device).to(TORCH_DTYPES[dtype]) for _ in range(2))
    return 2 * size**3 / _median_seconds(lambda: a @ b, a.device, repeats)


def launch_seconds(device: str | torch.device = "cpu", launches: int = 100, repeats: int = 5) -> float:
    """Host seconds of asking for one small operation of PyTorch: many in a row on a few numbers, none of them waited for.

    On a CPU the operation itself is in it. Ten times ``launches`` stand in a GPU's queue, which holds some thousand.
    """
    x, seconds = torch.zeros(16, device=device), []

    def ask() -> None:
        start = time.perf_counter()
        for _ in range(launches):
            x.add_(1)
        seconds.append(time.perf_counter() - start)

    _median_seconds(ask, x.device, repeats)
    return statistics.median(seconds[-repeats:]) / launches


def memory_bytes(device: str | torch.device = "cpu") -> int:
    """Total memory of the device in bytes; of a CPU what the system has, or its control group's limit."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no such file, or "max"
        return total


def describe(device: str | torch.device = "cpu") -> dict[str, str | int | None]:
    """The facts that a stored measurement carries: device, cpu, cores, threads, versions, date, commit.

    ``cores`` are those this process may use; ``commit`` is None outside the project's repository and
    ends in "+changes" when tracked files differ from it.

    >>> sorted(describe())
    ['commit', 'cores', 'cpu', 'date', 'device', 'python', 'system', 'threads', 'torch']
    """
    device = torch.device(device)
    cpu = _cpu_model()
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu,
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
        "commit": _commit(Path(__file__).resolve()),
    }


def _native_dtypes(device: torch.device) -> tuple[str, ...]:
    if device.type == "cpu":
        return ("fp32", "bf16")
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0):
        return ("fp32", "fp16", "bf16")
    return ("fp32", "fp16")


def _touched(n_bytes: int, device: str | torch.device) -> torch.Tensor:
    """A buffer of fp32 ones: written, so that its pages exist (untouched ones all map to one page of zeros)."""
    if n_bytes < 8:
        raise KveduError(f"a buffer to measure needs at least 8 bytes, and several times the cache to mean much, not {n_bytes}")
    return torch.ones(n_bytes // 4, device=device)


def _median_seconds(work: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Median time of one call after a warm-up; a GPU's calls are timed ten at once between two waits."""
    calls = 1 if device.type == "cpu" else 10

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        elif device.type == "mps":
            torch.mps.synchronize()

    work()
    wait()
    times: list[float] = []
    while len(times) < max(1, repeats) and sum(times) < 1.0:  # slow work is clear after a second
        start = time.perf_counter()
        for _ in range(calls):
            work()
        wait()
        times.append(time.perf_counter() - start)
    return max(statistics.median(times) / calls, 1e-12)


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    named = _output("sysctl", "-n", "machdep.cpu.brand_string") if platform.system() == "Darwin" else None
    return named or platform.processor() or platform.machine()


def _commit(file: Path) -> str | None:
    """``KVEDU_COMMIT`` where it is set, else the short commit of the repository that tracks this file, if there is one."""
    if given := os.environ.get("KVEDU_COMMIT"):
        return given
    if _output("git", "-C", str(file.parent), "ls-files", "--error-unmatch", file.name) is None:
        return None
    commit = _output("git", "-C", str(file.parent), "rev-parse", "--short=12", "HEAD")
    changed = _output("git", "-C", str(file.parent), "status", "--porcelain", "--untracked-files=no")
    return f"{commit}+changes" if commit and changed else commit


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
