"""One launch of a Triton kernel as a value: what runs, over which grid, with which arguments, tuned how.

Every ``x_triton.py`` has functions that *plan* launches (pure: shapes, strides and a ``Chip`` in, ``Launch`` out).
The public call runs the plan; ``ahead`` compiles the same plan without a GPU; a test forces every branch of it
through block sizes. Triton itself is imported only when a kernel is first wanted.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Mapping

import torch
from torch import Tensor

from kvedu.errors import KveduError

LOG2E = 1.4426950408889634
"""log2(e): a GPU computes 2**x in one instruction, so scores are scaled by this and the softmax is taken in base 2."""


class KernelError(KveduError):
    """A kernel that cannot run here, or tensors that it cannot take."""


@dataclass(frozen=True)
class Chip:
    """What a plan asks of the chip: its compute capability, multiprocessors, and shared memory per program in bytes.

    ``capability`` is 75, 80, 90 or 100 on NVIDIA's, 0 where there is no such number (AMD, Intel, the interpreter).
    """

    capability: int = 0
    processors: int = 8
    shared: int = 64 * 1024

    @property
    def bf16(self) -> bool:
        """Whether it computes in bf16. Capability 7.5 (T4) does not, whatever the support query says."""
        return self.capability != 75

    @property
    def stages(self) -> int:
        """Loads kept in flight: before capability 8.0 there are no asynchronous copies to shared memory."""
        return 1 if 0 < self.capability < 80 else 3

    @property
    def wgmma(self) -> bool:
        """Whether products take their operands from shared memory: 9.0 and 10.0, and chips without a number; 12.0 is like 8.x again."""
        return self.capability == 0 or 90 <= self.capability < 120

    def products_pay(self, rows: int) -> bool:
        """Whether products of so many rows are quicker in Triton than in PyTorch: on 7.5 it uses no tensor cores, so only short ones are."""
        return self.capability != 75 or rows <= 64

    @property
    def float8(self) -> bool:
        """Whether one instruction turns e4m3 into fp16 (capability 8.9 and later); else integer code does."""
        return self.capability >= 89

    @staticmethod
    def known(capability: int) -> Chip:
        """A chip by its capability alone, for compiling ahead of time."""
        shared = {75: 64, 80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}.get(capability, 64) * 1024
        return Chip(capability, {75: 40, 80: 108, 90: 132, 100: 148}.get(capability, 64), shared)


@dataclass(frozen=True)
class Launch:
    """A kernel, its grid and everything it is called with. ``constants`` are known when it is compiled."""

    kernel: Any
    grid: tuple[int, ...]
    args: Mapping[str, Tensor | int | float | None]
    constants: Mapping[str, Any]
    warps: int = 4
    stages: int = 3

    def run(self) -> None:
        """Launch it on the device of its tensors; returns before it has run."""
        if 0 in self.grid:
            return
        device = next(x.device for x in self.args.values() if isinstance(x, Tensor))
        launch = self.kernel[self.grid]
        if device.type == "cpu" or device.index in (None, torch.accelerator.current_device_index()):
            launch(**self.args, **self.constants, num_warps=self.warps, num_stages=self.stages)
        else:
            with torch.accelerator.device_index(device.index):
                launch(**self.args, **self.constants, num_warps=self.warps, num_stages=self.stages)


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n: what the axes of a Triton tile must be."""
    return 1 << max(n - 1, 0).bit_length()


@functools.cache
def missing() -> str | None:
    """Why Triton cannot be imported here, or None."""
    if find_spec("triton") is None:
        return "Triton is not installed (it has wheels for Linux; on macOS there are none)"
    try:
        import triton  # noqa: F401
    except Exception as error:  # a broken installation is an answer too
        return f"Triton cannot be imported: {error}"
    return None


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter: TRITON_INTERPRET=1 stood in the environment before its first import."""
    if missing():
        return False
    import triton.language as tl

    if type(tl.cdiv).__name__ != "InterpretedFunction":
        return False
    _take_bounds_from_tensors()
    return True


@functools.cache
def _take_bounds_from_tensors() -> None:
    """Let a loop's bound be a tensor of one element, which the interpreter of Triton 3.6 hands to ``int`` and NumPy 2.4 refuses."""
    import triton
    from triton.runtime import interpreter

    if not triton.__version__.startswith("3.6."):
        return
    patch = interpreter._patch_lang_tensor

    def patch_and_mend(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch_and_mend


def runs_on(device: torch.device) -> bool:
    """Whether Triton kernels can run on tensors of this device."""
    if missing():
        return False
    if interpreted():
        return True
    return device.type in ("cuda", "xpu")


def graded(*tensors: Tensor) -> bool:
    """Whether someone wants a gradient, which the kernels do not give."""
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def triton_wanted(choice: bool | None, *tensors: Tensor) -> bool:
    """Dispatch by argument and device: True and False decide; None means Triton where the tensors are on a GPU.

    Raises ``KernelError`` where True cannot be had.
    """
    device = tensors[0].device
    if choice is None:
        return device.type != "cpu" and runs_on(device)
    if choice and not runs_on(device):
        raise KernelError(
            f"triton=True on {device}: {missing() or 'kernels are compiled for GPUs'}. Leave it out for the PyTorch path, "
            "or set TRITON_INTERPRET=1 before Python starts to run the same kernel in the interpreter"
        )
    return choice


def chip_of(x: Tensor) -> Chip:
    """The chip that a tensor lives on."""
    return Chip() if x.device.type == "cpu" or interpreted() else _chip(x.device)


@functools.cache
def _chip(device: torch.device) -> Chip:
    from triton.runtime import driver

    target = driver.active.get_current_target()
    facts = driver.active.utils.get_device_properties(device.index or 0)
    capability = target.arch if target.backend == "cuda" else 0
    return Chip(capability, facts["multiprocessor_count"], facts["max_shared_mem"])


def check_whole(**tensors: Tensor) -> None:
    """Raise ``KernelError`` where a tensor is not one run of memory: small tables of a step, which kernels index plainly."""
    for name, x in tensors.items():
        if not x.is_contiguous():
            raise KernelError(f"{name} {tuple(x.shape)} has strides {x.stride()}; call .contiguous()")


def check_layout(like: Tensor, tables_BJ: Tensor, rows: Tensor, fields: int) -> None:
    """Raise ``KernelError`` where a step's tables are not ``[B, J]``, its rows not ``[B, fields]``, or a kernel could not index with them."""
    if tables_BJ.dim() != 2 or tuple(rows.shape) != (len(tables_BJ), fields):
        came = f"tables {tuple(tables_BJ.shape)} and rows {tuple(rows.shape)}"
        raise KernelError(f"{came} do not fit: want [B, J] and [B, {fields}], a row for each table")
    for name, x in (("tables", tables_BJ), ("rows", rows)):
        if x.dtype not in (torch.int32, torch.int64):
            raise KernelError(f"{name} are {x.dtype}; want integers, int32 tables and int64 rows as PagedLayout.of makes them")
        if x.device != like.device:
            raise KernelError(f"{name} are on {x.device}, the queries on {like.device}; call layout.to({str(like.device)!r})")
    check_whole(rows=rows)


def check_rows(**tensors: Tensor) -> None:
    """Raise ``KernelError`` where a tensor's last axis is not dense or its device is not that of the first."""
    first, like = next(iter(tensors.items()))
    for name, x in tensors.items():
        if x.stride(-1) != 1 and x.shape[-1] != 1:
            raise KernelError(f"the last axis of {name} must be dense, its stride is {x.stride(-1)}; call .contiguous()")
        if x.device != like.device:
            raise KernelError(f"{name} is on {x.device}, {first} on {like.device}; move one of them")
