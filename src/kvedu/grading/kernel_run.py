"""Put a learner's Triton kernel to work on a grader's tensors, and note what it left: for graders of kernel labs.

In the interpreter every access is checked: a read or write that belongs to no tensor is told as such, and a masked load
without ``other=`` gives NaN. On a GPU the same kernel is compiled and run. A grader's own answers are not kernels but
plain PyTorch functions, each a ``Twin``: the grader's side needs no Triton.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kvedu.grading.exercise import Unfit

@dataclass(frozen=True)
class Twin:
    """A right or wrong answer of a grader: a function of the kernel's own arguments that leaves in the result tensors what such a kernel leaves."""

    fill: Callable[..., None]

    def __call__(self, **args: Any) -> None:
        """Fill the result tensors."""
        self.fill(**args)


def hollow(x: Tensor, stretch: int = 2) -> Tensor:
    """The same values in memory with gaps of NaN (of -1 for whole numbers) around every row: no two rows side by side, the last axis dense."""
    room = [n * stretch + 1 for n in x.shape[:-1]] + [x.shape[-1] + 8]
    store = torch.full(room, torch.nan if x.is_floating_point() else -1, dtype=x.dtype)
    view = store[tuple(slice(0, n * stretch, stretch) for n in x.shape[:-1])][..., : x.shape[-1]]
    return view.copy_(x)


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A result tensor for a kernel to fill: NaN everywhere, in memory with gaps."""
    return hollow(torch.full(shape, torch.nan, dtype=dtype))


def run_kernel(
    kernel: Any, grid: Sequence[int], args: Mapping[str, Any], results: Sequence[str], constants: Mapping[str, Any] | None = None, *, warps: int = 4
) -> dict[str, Any]:
    """Launch ``kernel`` (or a ``Twin``) over the grid; returns ``{"left": (results…), "asked": …, "read": …, "written": …, "flops": …}``.

    ``args`` are tensors and numbers by the kernel's parameter names, ``constants`` its ``tl.constexpr``. Counts are
    bytes and FLOPs as in ``kernels.watch``; None on a GPU and for a ``Twin``. Raises ``Unfit`` with a sentence for what is no kernel,
    has other parameters, touches places that belong to no tensor, or writes to a tensor that is none of its results.
    """
    args, constants = dict(args), dict(constants or {})
    counts: dict[str, Any] = dict.fromkeys(("asked", "read", "written", "flops"))
    if isinstance(kernel, Twin):
        kernel(**args, **constants)
        return {"left": tuple(args[name].clone() for name in results), **counts}
    _check_kernel(kernel, (*args, *constants))
    from kvedu.kernels.launch import interpreted

    tensors = {name: x for name, x in args.items() if isinstance(x, Tensor)}
    if interpreted():
        before = {name: x.clone() for name, x in tensors.items()}
        counts = _interpret(kernel, tuple(grid), args, constants, tensors)
        _check_inputs(before, tensors, results)
        return {"left": tuple(tensors[name].clone() for name in results), **counts}
    device = next(kind for kind in ("cuda", "xpu") if getattr(torch, kind).is_available())
    moved = {name: _moved(x, device) for name, x in tensors.items()}
    kernel[tuple(grid)](**(args | moved), **constants, num_warps=warps)
    _check_inputs(tensors, moved, results)
    for name in results:
        if not _gaps_whole(x := moved[name]):
            raise Unfit(f"the kernel writes between the elements of {name}, which has strides {x.stride()}: is a mask missing, or a stride wrong?")
    return {"left": tuple(moved[name].cpu() for name in results), **counts}


def left(seen: dict[str, Any]) -> Any:
    """For ``Exercise(compared=left)``: what the kernel left in its results; counts are for rules."""
    return seen["left"] if len(seen["left"]) > 1 else seen["left"][0]


def _interpret(kernel: Any, grid: tuple[int, ...], args: dict[str, Any], constants: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    from triton.runtime.errors import InterpreterError

    from kvedu.kernels.watch import StrayAccess, watching

    with watching(strict=True, **tensors) as watched:
        try:
            kernel[grid](**args, **constants)
        except InterpreterError as error:
            cause: BaseException = error
            while isinstance(cause, InterpreterError) and cause.__cause__ is not None:
                cause = cause.__cause__
            if isinstance(cause, StrayAccess):
                raise Unfit(str(cause)) from None
            raise cause from None
    return {name: getattr(watched, name) for name in ("asked", "read", "written", "flops")}


def _check_kernel(kernel: Any, names: Sequence[str]) -> None:
    if type(kernel).__name__ not in ("JITFunction", "InterpretedFunction"):
        raise Unfit("a Triton kernel was wanted: leave the line `@triton.jit` above its `def`")
    have = list(kernel.arg_names)
    if lacking := [name for name in names if name not in have]:
        raise Unfit(f"the kernel is called with {', '.join(names)}; it lacks {', '.join(lacking)}: keep its parameters as the exercise gives them")
    with contextlib.suppress(OSError):  # a compiler would stumble over the starter's line, and not say why
        if "raise NotImplementedError" in inspect.getsource(kernel.fn):
            raise NotImplementedError("your code here")


def _check_inputs(before: Mapping[str, Tensor], after: Mapping[str, Tensor], results: Sequence[str]) -> None:
    """Raise ``Unfit`` where a kernel has changed a tensor that is none of its results."""
    for name, x in before.items():
        if name not in results and not torch.equal(after[name].cpu().nan_to_num(), x.nan_to_num()):
            raise Unfit(f"the kernel writes to {name}; store to {' and '.join(results)} only")


def _moved(x: Tensor, device: str) -> Tensor:
    """A view of the same shape, strides and surroundings on another device."""
    return _whole(x).to(device, copy=True).as_strided(x.shape, x.stride(), x.storage_offset())


def _whole(x: Tensor) -> Tensor:
    """All of the memory that a view lies in, as one row."""
    return torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage())


def _gaps_whole(x: Tensor) -> bool:
    """Whether what lies between a tensor's elements is still NaN or -1."""
    whole = _whole(x).clone()
    whole.as_strided(x.shape, x.stride(), x.storage_offset()).fill_(torch.nan if x.is_floating_point() else -1)
    return bool((whole.isnan() if x.is_floating_point() else whole == -1).all())
