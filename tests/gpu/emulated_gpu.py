"""A pretend GPU: tensors say ``pretend:0``, are computed on the CPU, and meet the CPU's tensors only where CUDA lets them.

It shows what a real one would refuse: operations over tensors of two devices, indices on a GPU into a tensor that is not, a result
written into the CPU's memory, a generator of the CPU that draws on the device, ``numpy()`` of what lies there. Triton's interpreter runs
on its tensors, so references, benches, engines and labs can be tried whole. It does not show whether a kernel compiles, how fast anything
is, who waits for whom, recordings, streams, pinned memory, other roundings, or code that asks for "cuda" by name; and a number
of the CPU, a tensor without axes, may go wherever it likes, which CUDA allows in most places only.

Import it before ``kvedu``, in a process of its own: the device, and ``torch.inference_mode`` as ``torch.no_grad``, are for good.
Tests that ask ``scenes`` for their device run on it with ``PYTHONPATH=tests/gpu python -m pytest -p emulated_gpu tests/kernels/...``.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator

os.environ["TRITON_INTERPRET"] = "1"
TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / room) for room in ("", "kernels", "engine", "laws", "../bench", "../tools")]

import pytest  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves, tree_map  # noqa: E402
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend  # noqa: E402

KIND = "pretend"
DEVICE = f"{KIND}:0"
MIX = {f"aten::{name}" for name in ("index", "_to_copy", "copy_", "index_put_", "index_put", "_index_put_impl_", "_foreach_copy_")}
"""Operations that may be given tensors of both."""
PUTS = {"aten::index_put_", "aten::index_put", "aten::_index_put_impl_"}


class There(Tensor):
    """A tensor of the pretend device; ``inner`` has its numbers, on the CPU."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> There:
        made = Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            layout=inner.layout, device=torch.device(DEVICE),
        )  # fmt: skip
        made.inner = inner
        return made

    def __repr__(self) -> str:
        return f"there({self.inner})"

    def __format__(self, spec: str) -> str:
        return format(self.inner, spec)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(function, args, kwargs or {})

    def __deepcopy__(self, memo: Any) -> There:
        return There(self.inner.clone())

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def tolist(self) -> Any:
        return self.inner.tolist()

    def untyped_storage(self) -> Any:
        return self.inner.untyped_storage()

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError(f"can't convert {DEVICE} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.")

    def pin_memory(self, device: Any = None) -> Tensor:
        raise RuntimeError("cannot pin a tensor that is not the CPU's")


def inner(x: Any) -> Any:
    """What the CPU computes with."""
    return x.inner if isinstance(x, There) else x


def refuse(function: Any, args: Any, kwargs: dict[str, Any], there: list[There], here: list[Tensor]) -> None:
    """Raise where CUDA does."""
    name, mutable = function._schema.name, function._schema.is_mutable
    if there and here and name not in MIX:
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {DEVICE} and cpu! ({name})")
    first = args[0] if args and isinstance(args[0], Tensor) else None
    if there and name == "aten::index" and not isinstance(first, There):
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
    if there and name in PUTS and not (isinstance(first, There) and (isinstance(args[2], There) or args[2].dim() == 0)):
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {DEVICE} and cpu! ({name})")
    if there and mutable and name not in MIX and first is not None and not isinstance(first, There):
        raise RuntimeError(f"{name} cannot write what was computed on {DEVICE} into a tensor of the cpu")
    generator, device = kwargs.get("generator"), kwargs.get("device")
    if generator is not None and generator.device.type == "cpu" and (there or (device is not None and torch.device(device).type == KIND)):
        raise RuntimeError(f"Expected a '{KIND}' device type for generator but found 'cpu' ({name})")


def run(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operation on the CPU's numbers; its results lie where its tensors do, or where it is told."""
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    there = [x for x in tensors if isinstance(x, There)]
    refuse(function, args, kwargs, there, [x for x in tensors if not isinstance(x, There) and x.dim() > 0])
    device, goes = kwargs.get("device"), bool(there)
    if device is not None and (goes := torch.device(device).type == KIND):
        kwargs = kwargs | {"device": torch.device("cpu")}
    kwargs = {key: value for key, value in kwargs.items() if key != "pin_memory"}
    args, kwargs = tree_map(inner, (args, kwargs))
    return tree_map(lambda y: wrapped(y, there), function(*args, **kwargs)) if goes else function(*args, **kwargs)


def wrapped(y: Any, given: list[There]) -> Any:
    """A result as a tensor of the device; one that was written in place is the one that was given."""
    if not isinstance(y, Tensor) or isinstance(y, There):
        return y
    same = [x for x in given if x.inner is y]
    return same[0] if same else There(y)


class Operations(TorchDispatchMode):
    """Those that no tensor of the device is given to, but that make one."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(function, args, dict(kwargs or {}))


class Functions(TorchFunctionMode):
    """What PyTorch does with a device before any operation: tensors made of lists, lists as indices, lists made of tensors."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        device = kwargs.get("device")
        if function in (torch.tensor, torch.as_tensor, torch.asarray) and device is not None and torch.device(device).type == KIND:
            rest = {key: value for key, value in kwargs.items() if key not in ("device", "data")}
            return function(args[0] if args else kwargs["data"], **rest).to(DEVICE)
        if args and isinstance(args[0], There):
            if function is Tensor.tolist:
                return args[0].inner.tolist()
            if function is Tensor.numpy:
                return args[0].numpy()
            if function in (Tensor.__getitem__, Tensor.__setitem__):
                which = args[1] if isinstance(args[1], tuple) else (args[1],)
                args = (args[0], tuple(torch.tensor(i) if isinstance(i, list) else i for i in which), *args[2:])
        return function(*args, **kwargs)


class NoGrad(torch.no_grad):
    """Instead of ``torch.inference_mode``, whose tensors pass no dispatch."""

    def __new__(cls, mode: Any = True) -> Any:
        return torch.no_grad()(mode) if callable(mode) else super().__new__(cls)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()


@contextmanager
def emulated() -> Iterator[None]:
    """Inside, tensors can lie on ``DEVICE``."""
    with Functions(), Operations():
        yield


def interpret_there() -> None:
    """Triton's interpreter takes tensors of the device."""
    from triton.runtime.interpreter import GridExecutor

    launch = GridExecutor.__call__

    def launch_there(self: GridExecutor, *args: Any, **settings: Any) -> Any:
        return launch(self, *map(inner, args), **{key: inner(x) for key, x in settings.items()})

    GridExecutor.__call__ = launch_there


_setup_privateuseone_for_python_backend(KIND)
torch.inference_mode = NoGrad


def pytest_configure() -> None:
    """As a plugin: what tests take for the GPU is this one."""
    interpret_there()
    import scenes

    scenes.DEVICE = DEVICE


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Tests, and what they set up, run inside."""
    with emulated():
        return (yield)
