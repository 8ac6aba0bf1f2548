"""Lab 19, exercise 2: numbers into codes of 8 bits, a scale for each token and head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.kernel_run import Twin, empty, hollow, left, run_kernel


def coded(x: Tensor, codes: Tensor, scales: Tensor, back: Tensor, scale: Tensor, whole: Any) -> None:
    """Symmetric codes with these scales; ``whole`` makes whole numbers of them."""
    ratio = torch.where(scale[..., None] == 0, 0.0, x / torch.where(scale == 0, 1.0, scale)[..., None])
    codes.copy_(whole(ratio).to(torch.int32).to(torch.int8))
    back.copy_(whole(ratio) * scale[..., None])
    scales.copy_(scale)


def right(x: Tensor, codes: Tensor, scales: Tensor, back: Tensor, **rest: Any) -> None:
    """What the lab's ``code_spec`` says."""
    coded(x, codes, scales, back, x.abs().amax(-1) / 127, torch.round)


def cut_off(x: Tensor, codes: Tensor, scales: Tensor, back: Tensor, **rest: Any) -> None:
    """Numbers after the point are cut off."""
    coded(x, codes, scales, back, x.abs().amax(-1) / 127, torch.trunc)


def by_128(x: Tensor, codes: Tensor, scales: Tensor, back: Tensor, **rest: Any) -> None:
    """The largest number becomes 128, which is -128 in 8 bits."""
    coded(x, codes, scales, back, x.abs().amax(-1) / 128, torch.round)


def no_magnitude(x: Tensor, codes: Tensor, scales: Tensor, back: Tensor, **rest: Any) -> None:
    """The largest number, not the largest magnitude."""
    coded(x, codes, scales, back, x.amax(-1) / 127, torch.round)


def by_zero(x: Tensor, codes: Tensor, scales: Tensor, back: Tensor, **rest: Any) -> None:
    """C016: a row of zeros is divided by its scale."""
    right(x, codes, scales, back)
    back[scales == 0] = torch.nan


def inverse(x: Tensor, codes: Tensor, scales: Tensor, back: Tensor, **rest: Any) -> None:
    """The factor that made the codes is stored."""
    right(x, codes, scales, back)
    scales.copy_(torch.where(scales == 0, 0.0, 1 / torch.where(scales == 0, 1.0, scales)))


def cases(fresh: Fresh) -> list[Case]:
    """Rows of known codes, away from the halves where roundings differ; a row of zeros; large and small scales."""
    made = []
    for N, K, D in ((1, 1, 16), (3, 2, 32), (2, 3, 64)):
        codes = torch.tensor([[fresh.tokens(D, 255) for _ in range(K)] for _ in range(N)], dtype=torch.float32) - 127
        offsets = 0.3 * torch.tanh(fresh.normal(N, K, D))
        codes[..., 0], offsets[..., 0] = 127, 0
        codes[0, 0, 1], offsets[0, 0, 1] = -127, 0
        codes.clamp_(-126.6, 127)
        size = torch.tensor([[10.0 ** fresh.integer(-4, 2) for _ in range(K)] for _ in range(N)])
        x_NKD = (codes + offsets).clamp(-127, 127) * size[..., None]
        if N > 1:
            x_NKD[0, 1] *= -1  # the largest magnitude is a negative number's
            x_NKD[0, 1] = x_NKD[0, 1].clamp(max=100 * size[0, 1].item())
            x_NKD[1, 0] = 0
        made.append(Case(f"{N} tokens, {K} heads of {D}" + (", one of them all zeros" if N > 1 else ""), (hollow(x_NKD),)))
    return made


def observe(kernel: Any, x_NKD: Tensor) -> dict[str, Any]:
    """One program for each token and head."""
    N, K, D = x_NKD.shape
    codes, scales, back = hollow(torch.full((N, K, D), -1, dtype=torch.int8)), empty(N, K), empty(N, K, D)
    args = dict(
        x=x_NKD, codes=codes, scales=scales, back=back, x_n=x_NKD.stride(0), x_k=x_NKD.stride(1), c_n=codes.stride(0), c_k=codes.stride(1),
        s_n=scales.stride(0), b_n=back.stride(0), b_k=back.stride(1),
    )  # fmt: skip
    return run_kernel(kernel, (N, K), args, ("codes", "scales", "back"), dict(D=D))


EXERCISE = Exercise(
    title="Into the page",
    read="book/19-quantized-pages",
    hint="The largest magnitude over 127 is the scale. `tl.floor(y + 0.5)` rounds. What is the scale of a row of zeros, and what must not be divided by it?",
    checked="three sets of rows with scales from 1e-4 to 100, some of them all zeros, in memory with gaps",
    cases=cases,
    observe=observe,
    compared=left,
    parts=("codes", "scales", "back"),
    right=Twin(right),
    mistakes=(
        Mistake(Twin(cut_off), "what stands after the point is cut off; the nearest code is half as far away"),
        Mistake(Twin(no_magnitude), "the scale is made of the largest number; the largest *magnitude* may be that of a negative one"),
        Mistake(Twin(by_zero), "a row of zeros has scale 0 and is divided by it: 0 / 0 is no number"),
        Mistake(Twin(by_128), "the largest number becomes code 128, and in 8 bits that is −128: divide by 127"),
        Mistake(Twin(inverse), "the inverse of the scale is stored; a number is its code *times* the scale"),
    ),
    tolerance=1e-4,
)  # fmt: skip
