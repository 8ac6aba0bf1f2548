"""Numbers between host and device so that the host waits for nothing that it does not read.

A copy from ordinary memory to a GPU first waits until the GPU has done what was asked of it before; one from pinned
memory only joins the queue. A copy back can be waited for alone, without what was asked for later. On a CPU, where
nothing is queued, all of this is an ordinary tensor.
"""

from __future__ import annotations

from typing import Any, Sequence

import torch
from torch import Tensor


QUEUING = ("cuda", "xpu")
"""Kinds of devices that queue what they are asked for, and read the host's pinned memory by themselves."""


def put(values: Sequence[Any], device: torch.device, dtype: torch.dtype = torch.int64) -> Tensor:
    """A tensor of these numbers on the device; the host does not wait for the copy.

    >>> put([3, 1], torch.device("cpu"))
    tensor([3, 1])
    """
    return move(torch.tensor(values, dtype=dtype, device="cpu"), device)


def move(x: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on the device, or one of a device on the host."""
    return x.to(device) if device.type == "cpu" else pinned(x, device).to(device, non_blocking=True)


def put_into(target: Tensor, values: Sequence[Any] | Tensor) -> None:
    """The same into a tensor that stays where it is, as long as the values or longer: the rest of it is not touched."""
    source = torch.as_tensor(values, dtype=target.dtype, device="cpu")
    target[: len(source)].copy_(pinned(source, target.device), non_blocking=True)


def pinned(x: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host in memory that this kind of device reads by itself; as it is, where there is no such memory."""
    return x.pin_memory() if device.type in QUEUING else x


class Coming:
    """A small tensor on its way to the host: ``read`` waits for it, and for nothing that was asked of the device since."""

    def __init__(self, x: Tensor) -> None:
        self._x, self._event = x, None
        if x.device.type in QUEUING:
            self._x = x.to("cpu", non_blocking=True)  # PyTorch takes pinned memory for it
            self._event = torch.Event(device=x.device)
            self._event.record()

    def read(self) -> list[Any]:
        """Its numbers, nested as its axes are."""
        if self._event is not None:
            self._event.synchronize()
        return self._x.tolist()
