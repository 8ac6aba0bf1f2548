"""Rotary position embedding (RoPE): turn pairs of head dimensions by an angle that grows with position.

Pair j of a head at position p is rotated by ``p * inv_freq[j]``. Two rotated vectors
then have a dot product that depends on the difference of their positions only,
which is why a cached key stays valid when tokens are appended after it.

Layout: *half-split*, as in Hugging Face checkpoints. Pair j is dimensions
``(j, j + dim/2)``, not ``(2j, 2j + 1)`` as in the paper (Su et al. 2021, RoFormer)
and in GGUF files of the Llama family.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from kvedu.kernels import native
from kvedu.rope_config import RopeConfig
from kvedu.units import Cost


def inverse_frequencies(rope: RopeConfig, length: int = 0) -> tuple[Tensor, float]:
    """Angles per position of each pair, fp32 of shape ``[dim/2]`` on the CPU, and the magnitude factor.

    ``length`` is the sequence length in tokens; only ``dynamic`` and ``longrope`` look
    at it. The factor multiplies cos and sin (YaRN and LongRoPE sharpen attention by it).
    Formulas: linear (Chen 2023), dynamic NTK and llama3 as published with their
    models, YaRN (Peng 2023), LongRoPE (Ding 2024).

    >>> inverse_frequencies(RopeConfig(dim=4, theta=10_000.0))[0].tolist()
    [1.0, 0.009999999776482582]
    """
    return _FORMULAS[rope.kind](rope, length)


def _series(dim: int, theta: float) -> Tensor:
    return 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32, device="cpu") / dim)


def _default(rope: RopeConfig, length: int) -> tuple[Tensor, float]:
    return _series(rope.dim, rope.theta), 1.0


def _linear(rope: RopeConfig, length: int) -> tuple[Tensor, float]:
    return _series(rope.dim, rope.theta) / rope.factor, 1.0


def _dynamic(rope: RopeConfig, length: int) -> tuple[Tensor, float]:
    stretch = max(length, rope.max_positions) / rope.max_positions
    theta = rope.theta * (rope.factor * stretch - (rope.factor - 1)) ** (rope.dim / (rope.dim - 2))
    return _series(rope.dim, theta), 1.0


def _llama3(rope: RopeConfig, length: int) -> tuple[Tensor, float]:
    inv_freq = _series(rope.dim, rope.theta)
    low, high = rope.low_freq_factor, rope.high_freq_factor
    turns = rope.original_max_positions * inv_freq / (2 * math.pi)  # full turns within the original context
    kept = ((turns - low) / (high - low)).clamp(0, 1)  # 0: slow pairs, divided by factor; 1: fast pairs, kept
    return (1 - kept) * inv_freq / rope.factor + kept * inv_freq, 1.0


def _yarn(rope: RopeConfig, length: int) -> tuple[Tensor, float]:
    inv_freq = _series(rope.dim, rope.theta)
    original = rope.original_max_positions or rope.max_positions

    def pair_that_turns(times: float) -> float:
        return rope.dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(rope.theta))

    first, last = pair_that_turns(rope.beta_fast), pair_that_turns(rope.beta_slow)
    if rope.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rope.dim - 1)
    ramp = (torch.arange(rope.dim // 2, dtype=torch.float32, device="cpu") - first) / max(last - first, 0.001)
    kept = 1 - ramp.clamp(0, 1)
    return inv_freq / rope.factor * (1 - kept) + inv_freq * kept, _yarn_magnitude(rope)


def _yarn_magnitude(rope: RopeConfig) -> float:
    def grow(mscale: float) -> float:
        return 1.0 if rope.factor <= 1 else 0.1 * mscale * math.log(rope.factor) + 1.0

    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return grow(rope.mscale) / grow(rope.mscale_all_dim)
    return grow(1.0)


def _longrope(rope: RopeConfig, length: int) -> tuple[Tensor, float]:
    original = rope.original_max_positions or rope.max_positions
    stretch = torch.tensor(rope.long_factor if length > original else rope.short_factor, dtype=torch.float32, device="cpu")
    magnitude = rope.attention_factor
    if magnitude is None:
        magnitude = 1.0 if rope.factor <= 1 else math.sqrt(1 + math.log(rope.factor) / math.log(original))
    return _series(rope.dim, rope.theta) / stretch, magnitude


_FORMULAS = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}


def cos_sin(rope: RopeConfig, positions_N: Tensor, dtype: torch.dtype, length: int = 0) -> tuple[Tensor, Tensor]:
    """Cosine and signed sine of the angles at these positions, both ``[N, 1, dim]`` in ``dtype``.

    Angles are computed in fp32 and the tables rounded at the end, whatever the model's
    dtype: bf16 cannot tell position 256 from 257. The sine carries the sign that
    ``rotate`` needs: negative in the first half, positive in the second.
    """
    inv_freq, magnitude = _frequencies_on(positions_N.device, rope, length)
    angles = positions_N.to(torch.float32)[:, None] * inv_freq
    cos, sin = angles.cos() * magnitude, angles.sin() * magnitude
    return (
        torch.cat((cos, cos), dim=-1)[:, None].to(dtype),
        torch.cat((-sin, sin), dim=-1)[:, None].to(dtype),
    )


def _frequencies_on(device: torch.device, rope: RopeConfig, length: int) -> tuple[Tensor, float]:
    """``inverse_frequencies`` where the positions are; only two formulas look at the length."""
    if device.type == "cpu":
        return inverse_frequencies(rope, length)
    return _copied(device, rope, length if rope.switch_length is not None else 0)


@functools.lru_cache(maxsize=256)
def _copied(device: torch.device, rope: RopeConfig, length: int) -> tuple[Tensor, float]:
    """Copied once: a step that copies them makes the host wait for the device, and cannot be recorded."""
    with torch.inference_mode(False):  # it outlives the pass that first wants it
        inv_freq, magnitude = inverse_frequencies(rope, length)
        return inv_freq.to(device), magnitude


def rotate(x_NHD: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the first ``dim`` dimensions of each head; any further dimensions pass unchanged.

    ``x_NHD`` is ``[N, heads, D]``; ``cos`` and ``sin`` come from ``cos_sin``. With halves
    (a, b): a' = a cos - b sin, b' = b cos + a sin, written as one multiply and one
    multiply-add over the whole head.
    """
    dim = cos.shape[-1]
    if dim < x_NHD.shape[-1]:
        return torch.cat((rotate(x_NHD[..., :dim], cos, sin), x_NHD[..., dim:]), dim=-1)
    return torch.addcmul(x_NHD * cos, x_NHD.roll(dim // 2, -1), sin)


def rotates_pair(q_NHD: Tensor, k_NKD: Tensor) -> bool:
    """Whether ``rotate_pair`` can serve these: the native kernel takes them, and each row's heads lie side by side."""
    return native.usable(q_NHD, k_NKD) and q_NHD.stride(1) == q_NHD.shape[2] and k_NKD.stride(1) == k_NKD.shape[2]


def rotate_pair(q_NHD: Tensor, k_NKD: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """``rotate`` of queries and keys in one native call, where ``rotates_pair``: fp32 tables, one rounding at the end."""
    (N, H, D), K = q_NHD.shape, k_NKD.shape[1]
    q_out, k_out = q_NHD.new_empty((N, H, D)), k_NKD.new_empty((N, K, D))
    native.library().kvedu_rotate(
        q_NHD.dtype is torch.float32, q_NHD.data_ptr(), k_NKD.data_ptr(), q_NHD.stride(0), k_NKD.stride(0),
        cos.data_ptr(), sin.data_ptr(), q_out.data_ptr(), k_out.data_ptr(), N, H, K, cos.shape[-1], D,
        torch.get_num_threads(),
    )  # fmt: skip
    return q_out, k_out


def rotate_reference(x_NHD: Tensor, positions_N: Tensor, rope: RopeConfig, length: int = 0) -> Tensor:
    """The definition, in fp32: each pair times a 2x2 rotation matrix. Slow and plain; judges ``rotate``."""
    inv_freq, magnitude = inverse_frequencies(rope, length)
    half = rope.dim // 2
    out = x_NHD.to(torch.float32).clone()
    for n, position in enumerate(positions_N.tolist()):
        for j in range(half):
            angle = position * inv_freq[j].item()
            a, b = x_NHD[n, :, j].to(torch.float32), x_NHD[n, :, j + half].to(torch.float32)
            out[n, :, j] = magnitude * (a * math.cos(angle) - b * math.sin(angle))
            out[n, :, j + half] = magnitude * (b * math.cos(angle) + a * math.sin(angle))
    return out.to(x_NHD.dtype)


def cost(tokens: int, heads: int, dim: int, bytes_per_element: int = 2) -> Cost:
    """Work to rotate ``tokens * heads`` vectors: 3 FLOPs per element; each is read and written once."""
    elements = tokens * heads * dim
    return Cost(flops=3 * elements, read=elements * bytes_per_element, written=elements * bytes_per_element)
