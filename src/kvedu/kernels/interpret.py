"""Triton's interpreter: kernels as NumPy on the CPU, chosen before Triton is first imported in a process.

A page or a lab says which it wants in its first cell, before ``import triton``: ``use_interpreter()`` where loads are to
be watched, ``kernel_device()`` where a GPU is better if there is one. Triton decides at its first import and cannot be
asked again.
"""

from __future__ import annotations

import os
import sys

import torch

from kvedu.kernels.launch import KernelError, interpreted, missing

SETTING = "TRITON_INTERPRET"


def use_interpreter() -> None:
    """From here on kernels of this process run in Triton's interpreter, on CPU tensors.

    Raises ``KernelError`` where Triton is not installed, or is imported already and compiles.
    """
    if "triton" not in sys.modules:
        os.environ[SETTING] = "1"
    if why := missing():
        raise KernelError(f"{why}; the pages show what these kernels gave where there is one")
    if not interpreted():
        raise KernelError("Triton has been imported already, as a compiler; restart Python (a notebook: its kernel) and run this line first")


def kernel_device() -> str:
    """Where kernels run here: "cuda" or "xpu" where there is such a GPU, else "cpu", in the interpreter from now on.

    ``TRITON_INTERPRET=1`` in the environment asks for the interpreter whatever there is. Raises ``KernelError`` as ``use_interpreter``.
    """
    kinds = [kind for kind in ("cuda", "xpu") if getattr(torch, kind).is_available()]
    if kinds and os.environ.get(SETTING) != "1" and not missing():
        return kinds[0]
    use_interpreter()
    return "cpu"
