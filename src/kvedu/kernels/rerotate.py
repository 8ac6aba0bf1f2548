"""Move keys that are already rotated: RoPE's angles add up, so a cached key can be turned on to another position.

A cache that drops tokens and numbers the rest anew must do this (or store keys plain and rotate
when it attends): its keys were turned by the old positions.
"""

from __future__ import annotations

from torch import Tensor

from kvedu.errors import CacheError
from kvedu.kernels.rope import cos_sin, inverse_frequencies, rotate
from kvedu.rope_config import RopeConfig


def rerotate(k_SKD: Tensor, by_S: Tensor, rope: RopeConfig, length: int = 0) -> Tensor:
    """Keys rotated at position p, turned to p + by: what ``rotate`` would give there.

    ``by_S`` are integers, ``[S]``. A rotation by p and then by d is one by p + d. The magnitude of YaRN
    and LongRoPE is in the keys already and is not put on again. ``length`` chooses the frequencies of
    ``dynamic`` and ``longrope`` and must be the one that the keys were rotated with. In bf16 each call
    rounds once more: turn keys a few times, not at every step. Cost: ``rope.cost``. Source: Xiao et al.
    2023, section 3.2 (keys are cached before they are turned); Su et al. 2021 for the rotation.

    Raises ``CacheError`` if there is not one step per key.

    >>> import torch
    >>> from kvedu.kernels.rope import rotate_reference
    >>> rope, k = RopeConfig(dim=4), torch.ones(1, 1, 4)
    >>> at_7, at_5 = (rotate_reference(k, torch.tensor([p]), rope) for p in (7, 5))
    >>> torch.allclose(rerotate(at_7, torch.tensor([-2]), rope), at_5)
    True
    """
    if by_S.shape != k_SKD.shape[:1]:
        raise CacheError(f"{len(k_SKD)} keys need as many steps, one each; got steps of shape {tuple(by_S.shape)}")
    magnitude = inverse_frequencies(rope, length)[1]
    cos, sin = cos_sin(rope, by_S, k_SKD.dtype, length)
    return rotate(k_SKD, cos / magnitude, sin / magnitude)
