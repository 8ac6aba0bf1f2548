"""How many bytes a piece of work holds at most: every allocation of PyTorch traced, its temporaries inside operations too."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the tracer's own words do not belong on a page


def peak_bytes(work: Callable[[], Any], device: str | torch.device = "cpu") -> int:
    """Largest sum of bytes that ``work`` holds at one time beyond what was there before, its result included.

    On a CPU by the allocator's own events (PyTorch's profiler), so that buffers inside a fused operation count; on a GPU
    by the allocator's counter. Not seen: memory that is not PyTorch's.

    >>> peak_bytes(lambda: torch.zeros(1000).exp())  # two tensors of 1,000 fp32 numbers
    8000
    """
    device = torch.device(device)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        kept = work()
        torch.cuda.synchronize(device)
        del kept
        return torch.cuda.max_memory_allocated(device) - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        kept = work()
    del kept
    now = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak
