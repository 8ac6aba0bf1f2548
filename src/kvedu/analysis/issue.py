"""Instructions that a GPU issues a second: the other limit of a kernel that reads much and must unpack what it reads."""

from __future__ import annotations

from kvedu.analysis.roofline import Hardware

ISSUED = 4 * 32
"""Threads for which a multiprocessor issues an instruction in one clock: four schedulers, a warp each, since capability 7.0."""
FP32_LANES = {75: 64, 80: 64}
"""Multiply-adds in fp32 of a multiprocessor in one clock; 128 where nothing else stands here."""


def issue_rate(hardware: Hardware, capability: int) -> float:
    """Instructions of single threads that a GPU issues a second, at most: four warps of 32 a clock on each multiprocessor.

    The clock is the one that its plain fp32 rate is quoted at, a multiply-add on each of its fp32 lanes. Many instructions
    (integers, conversions, exponentials) have fewer lanes, so this is an upper limit.
    Source: throughput table of the CUDA C++ programming guide.

    >>> from kvedu.analysis.hardware import hardware
    >>> [round(issue_rate(hardware(name), capability) / 1e12, 1) for name, capability in (("A100-80GB-SXM", 80), ("H200-SXM", 90))]
    [19.5, 33.5]
    """
    return hardware.peak("fp32") / 2 * ISSUED / FP32_LANES.get(capability, ISSUED)
