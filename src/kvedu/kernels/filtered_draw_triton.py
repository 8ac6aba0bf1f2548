"""One program a row: the end of what the filters keep, found by halving, then the token."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from kvedu.kernels.filtered_draw import BITS
from kvedu.kernels.launch import KernelError, Launch, power_of_two


@triton.jit
def key_of(x, BITS: tl.constexpr):
    """fp64 as an integer of the same order. Bits that no number of the logits' type has are left out: they follow from the sign."""
    bits = tl.where(x == 0.0, 0.0, x).to(tl.int64, bitcast=True)  # -0 is 0
    return (bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)) >> (64 - BITS)


@triton.jit
def number_of(key, BITS: tl.constexpr):
    """The number that has this key."""
    left_out: tl.constexpr = (1 << (64 - BITS)) - 1
    bits = (key << (64 - BITS)) | (left_out & (key >> 63))
    return (bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)).to(tl.float64, bitcast=True)


@triton.jit
def above(row, key, most, heat, V, BITS: tl.constexpr, BLOCK: tl.constexpr, WEIGH: tl.constexpr):
    """How many logits have a larger key, and what they weigh (0 unless WEIGH)."""
    lanes = tl.arange(0, BLOCK)
    count = tl.zeros([BLOCK], tl.int32)
    mass = tl.zeros([BLOCK], tl.float64)
    for start in range(0, V, BLOCK):
        inside = start + lanes < V
        x = tl.load(row + start + lanes, mask=inside, other=float("-inf")).to(tl.float64)
        over = inside & (key_of(x, BITS) > key)
        count += over.to(tl.int32)
        if WEIGH:
            mass += tl.where(over, tl.exp((x - most) / heat), 0.0)
    return tl.sum(count, 0), tl.sum(mass, 0)


@triton.jit
def last_kept(row, k, nucleus, min_p, most, least, heat, V, BITS: tl.constexpr, BLOCK: tl.constexpr, WEIGH: tl.constexpr):
    """Smallest key that is kept: fewer than k logits lie above it, they weigh less than the nucleus, and it weighs min_p itself."""
    low = key_of(least, BITS) - 1
    high = key_of(most, BITS)  # nothing lies above it, so it is kept
    light = most - 746.0 * heat  # below it weights are 0
    step = 0
    while low + 1 < high:
        below = number_of(low, BITS)
        below = tl.where(below > light, below, light)
        middle = key_of((below + number_of(high, BITS)) / 2, BITS)
        half = (low & high) + ((low ^ high) >> 1)  # no sum that could overflow
        middle = tl.where(step < 10, middle, half)  # first halve the distance, then the keys that are left
        middle = tl.minimum(tl.maximum(middle, low + 1), high - 1)
        count, mass = above(row, middle, most, heat, V, BITS, BLOCK, WEIGH)
        weight = tl.exp((number_of(middle, BITS) - most) / heat)
        kept = (count < k) & (mass < nucleus) & (weight >= min_p)
        high = tl.where(kept, middle, high)
        low = tl.where(kept, low, middle)
        step += 1
    return high


@triton.jit
def draw_row(logits, settings, ids, logits_r, V, BITS: tl.constexpr, BLOCK: tl.constexpr):
    """Largest; weight of the k best; where what is kept ends; what is kept weighs; the token, in the order of ids."""
    r = tl.program_id(0).to(tl.int64)
    row = logits + r * logits_r
    heat = tl.load(settings + 5 * r)
    k = tl.load(settings + 5 * r + 1)
    top_p = tl.load(settings + 5 * r + 2)
    min_p = tl.load(settings + 5 * r + 3)
    u = tl.load(settings + 5 * r + 4)
    k = tl.where(heat == 0.0, 1, tl.where((k < 1) | (k > V), V, k)).to(tl.int64)
    heat = tl.where(heat == 0.0, 1.0, heat)
    lanes = tl.arange(0, BLOCK)

    top = tl.full([BLOCK], float("-inf"), tl.float64)
    low = tl.full([BLOCK], float("inf"), tl.float64)
    odd = tl.zeros([BLOCK], tl.int32)
    for start in range(0, V, BLOCK):
        x = tl.load(row + start + lanes, mask=start + lanes < V, other=float("-inf")).to(tl.float64)
        odd += (x != x).to(tl.int32)
        top = tl.maximum(top, x)
        low = tl.minimum(low, tl.where(start + lanes < V, x, float("inf")))
    most = tl.max(top, 0)
    least = tl.min(low, 0)
    if (tl.sum(odd, 0) > 0) | (most == float("inf")) | (most == float("-inf")):
        tl.store(ids + r, -1)
        return

    nucleus = tl.full([], float("inf"), tl.float64)  # whatever lies above weighs less
    if top_p < 1.0:
        end = key_of(least, BITS) - 1
        if k < V:
            end = last_kept(row, k, nucleus, 0.0, most, least, heat, V, BITS, BLOCK, False)
        count, nucleus = above(row, end, most, heat, V, BITS, BLOCK, True)
        if k < V:  # of equal ones as many as k still lacks
            nucleus += (k - count) * tl.exp((number_of(end, BITS) - most) / heat)
        nucleus *= top_p

    key = key_of(least, BITS) - 1  # what is kept lies above it, and of those equal to it the first few
    few = tl.zeros([], tl.int64)
    if (k < V) | (top_p < 1.0) | (min_p > 0.0):
        if top_p < 1.0:
            key = last_kept(row, k, nucleus, min_p, most, least, heat, V, BITS, BLOCK, True)
        else:
            key = last_kept(row, k, nucleus, min_p, most, least, heat, V, BITS, BLOCK, False)
        count, mass = above(row, key, most, heat, V, BITS, BLOCK, True)
        own = tl.exp((number_of(key, BITS) - most) / heat)
        few = k - count
        if own > 0.0:
            few = tl.minimum(few, tl.ceil(tl.minimum((nucleus - mass) / own, 2147483647.0)).to(tl.int64))
        few = tl.maximum(few, 1)

    seen = tl.zeros([], tl.int64)
    whole = tl.zeros([], tl.float64)
    for start in range(0, V, BLOCK):
        inside = start + lanes < V
        x = tl.load(row + start + lanes, mask=inside, other=float("-inf")).to(tl.float64)
        own_key = key_of(x, BITS)
        equal = (inside & (own_key == key)).to(tl.int64)
        kept = inside & ((own_key > key) | ((equal > 0) & (seen + tl.cumsum(equal, 0) <= few)))
        whole += tl.sum(tl.where(kept, tl.exp((x - most) / heat), 0.0), 0)
        seen += tl.sum(equal, 0)

    target = u * whole
    found = tl.full([], 9223372036854775807, tl.int64)
    latest = tl.zeros([], tl.int64)
    seen = tl.zeros([], tl.int64)
    passed = tl.zeros([], tl.float64)
    for start in range(0, V, BLOCK):
        i = (start + lanes).to(tl.int64)
        inside = i < V
        x = tl.load(row + i, mask=inside, other=float("-inf")).to(tl.float64)
        own_key = key_of(x, BITS)
        equal = (inside & (own_key == key)).to(tl.int64)
        kept = inside & ((own_key > key) | ((equal > 0) & (seen + tl.cumsum(equal, 0) <= few)))
        weight = tl.where(kept, tl.exp((x - most) / heat), 0.0)
        drawn = (weight > 0.0) & (passed + tl.cumsum(weight, 0) > target)
        found = tl.minimum(found, tl.min(tl.where(drawn, i, 9223372036854775807), 0))
        latest = tl.maximum(latest, tl.max(tl.where(weight > 0.0, i, 0), 0))
        seen += tl.sum(equal, 0)
        passed += tl.sum(weight, 0)
    tl.store(ids + r, tl.minimum(found, latest))


def plan_filtered_draw(logits_RV: Tensor, settings_R5: Tensor, ids_R: Tensor, block: int | None = None) -> Launch:
    """The one launch."""
    fits = logits_RV.dim() == 2 and settings_R5.shape == (len(logits_RV), 5)
    if not fits or str(settings_R5.dtype) != "torch.float64" or logits_RV.dtype not in BITS:
        raise KernelError(
            f"logits {tuple(logits_RV.shape)} in {logits_RV.dtype} and settings {tuple(settings_R5.shape)} in {settings_R5.dtype} do not fit: "
            f"want [R, V] in one of {', '.join(map(str, BITS))} and [R, 5] in torch.float64"
        )
    R, V = logits_RV.shape
    block = block or min(power_of_two(V), 2048 if logits_RV.dtype.itemsize == 8 else 4096)
    args = dict(logits=logits_RV, settings=settings_R5, ids=ids_R, logits_r=logits_RV.stride(0), V=V)
    return Launch(draw_row, (R,), args, {"BITS": BITS[logits_RV.dtype], "BLOCK": block}, warps=16 if block >= 2048 else 4, stages=1)
