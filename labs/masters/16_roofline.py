# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lab 16 · Roofline
#
# You will count FLOPs per byte for prefill and decode, find the batch that carries a step over the
# ridge, or that there is none, and write your first two Triton kernels. The second does two
# operations and must not read a byte twice. Chapter 16 has the story.
#
# The letters are the book's: **T** new tokens, **S** cached tokens, **B** sequences, **H** query
# heads, **K** KV heads, **D** head size, **M** the model's width, **N** rows.

# %%
import torch
from torch import Tensor

import kvedu
from kvedu.analysis.flops import decode_cost
from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.weights import weights_read
from kvedu.kernels.interpret import kernel_device
from kvedu.kernels.watch import watching

DEVICE = kernel_device()  # before Triton is imported: "cpu" means its interpreter
import triton
import triton.language as tl

_ = torch.set_grad_enabled(False)

# %% [markdown]
# ## Exercise 1 · FLOPs per byte
#
# **Outcome:** the intensity of attention, counted · **Difficulty:** ●○○ · **Time:** 10 min
#
# A sequence has S cached tokens, and T new ones come in one step. Each new token looks at the
# cached ones and, of the new ones, at itself and those before it. Write
# `intensity(T, S, H, K, D, size)`: the FLOPs of scores and of weighted values, over the bytes of
# all keys and values, the new ones' too, read once. Queries and results do not count. A number has
# `size` bytes; a multiplication and an addition are two FLOPs.
#
# (These are the bytes from HBM, where the second-level cache keeps the keys from one block of
# queries to the next; what comes to a multiprocessor is read anew for each block, so that its FLOPs
# per byte in bf16 are the rows of a block, the other number in chapter 16's table: chapter 17.)

# %% [markdown]
# <details><summary>Hint</summary>
#
# How many pairs of a query and a key that it sees are there? T × S and a triangle.
#
# </details>

# %% tags=["exercise"]
def intensity(T, S, H, K, D, size):
    """FLOPs per byte of the cache, one sequence, one layer."""
    ### BEGIN SOLUTION
    seen = T * S + T * (T + 1) / 2
    return 4 * D * H * seen / (2 * (S + T) * K * D * size)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab16.intensity", intensity)

# %% tags=["measure"]
shape = known_model("Llama-3-8B").shape
H, K, D = shape.n_heads, shape.n_kv_heads, shape.head_dim
h200 = hardware("H200-SXM")
ridge = h200.peak("bf16") / h200.bandwidth
print(f"Llama-3-8B on an H200, whose ridge is at {ridge:.0f} FLOPs per byte")
for name, T, S in (
    ("decode", 1, 4095),
    ("4 guesses checked at once", 5, 4091),
    ("chunk of 512", 512, 3584),
    ("prompt of 4,096", 4096, 0),
):
    found = intensity(T, S, H, K, D, 2)
    share = min(1, found / ridge)
    print(f"{name:26} {found:8,.1f} FLOPs per byte: at most {share:4.0%} of the arithmetic")

# %% [markdown] tags=["solution"]
# The cache can be read once for all tokens that are new in the step: that is where speculation and
# chunked prefill get their arithmetic from, in attention too. More sequences do not help, since
# each brings a cache of its own.

# %% [markdown]
# ## Exercise 2 · Over the ridge
#
# **Outcome:** the batch from which a decode step is bound by compute, or none · **Difficulty:** ●●○
# · **Time:** 15 min
#
# A decode step reads `weights` bytes once, whatever the batch, and `cache` bytes for each sequence.
# It does `flops` FLOPs for each sequence. The machine does `peak` FLOP/s and reads `bandwidth`
# bytes/s. Write `smallest_batch(weights, cache, flops, peak, bandwidth)`: the smallest whole B at
# which the arithmetic takes at least as long as the reading, or `None` where no B does.

# %% [markdown]
# <details><summary>Hint</summary>
#
# Reading takes (weights + B × cache) / bandwidth, and the arithmetic B × flops / peak. Both are
# straight lines in B. Do they meet?
#
# </details>

# %% tags=["exercise"]
def smallest_batch(weights, cache, flops, peak, bandwidth):
    """Sequences from which a decode step is bound by compute, or None."""
    ### BEGIN SOLUTION
    lead = flops / peak - cache / bandwidth  # what one more sequence gains
    if lead <= 0:
        return None
    batch = max(1, int(weights / bandwidth / lead) - 1)
    while batch * flops / peak < (weights + batch * cache) / bandwidth:
        batch += 1
    return batch
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab16.smallest_batch", smallest_batch)

# %% tags=["measure"]
config = known_model("Llama-3-8B").config
print(f"{'smallest batch, by context':26}" + "".join(f"{n:8,}" for n in (128, 512, 1024, 4096)))
for name in ("A100-80GB-SXM", "H100-SXM", "H200-SXM"):
    chip, line = hardware(name), ""
    for context in (128, 512, 1024, 4096):
        parts = decode_cost(config, context, 1)
        flops, cache = sum(part.flops for part in parts.values()), parts["attention"].bytes
        weights = weights_read(config, 2)
        batch = smallest_batch(weights, cache, flops, chip.peak("bf16"), chip.bandwidth)
        line += f"{'none' if batch is None else f'{batch:,}':>8}"
    print(f"{name:26}{line}")

# %% [markdown]
# ## A kernel is a program for one block
#
# Now the other side: code whose bytes you decide. A Triton kernel is written for *one program*; the
# launch `kernel[grid](…)` starts as many as the grid says, and `tl.program_id(0)` tells a program
# which one it is. A tensor comes in as a pointer; `x + i` is the address of element `i`, and a tile
# of addresses is loaded at once. The length of a tile is a power of two that is known when the
# kernel is compiled (`tl.constexpr`), so the last tile mostly reaches past the end.
# `tl.load(x + i, mask=i < n, other=0.0)` touches only what the mask lets through. This one fills a
# tensor with its own indices:

# %%
@triton.jit
def indices(out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, at, mask=at < n)


out_N = torch.full((10,), -1, dtype=torch.int32, device=DEVICE)
indices[(3,)](out_N, 10, BLOCK=4)
print(out_N.tolist())

# %% [markdown]
# ## Exercise 3 · A first kernel
#
# **Outcome:** a grid, a tile, a mask · **Difficulty:** ●○○ · **Time:** 10 min
#
# The spec says what to compute. Your kernel is launched with one program for every `BLOCK` numbers.

# %%
def axpy_spec(x_N: Tensor, y_N: Tensor, a: float) -> Tensor:
    """fp32 [N], fp32 [N] -> fp32 [N]."""
    return a * x_N + y_N


# %% [markdown]
# <details><summary>Hint</summary>
#
# Three lines more than `indices`: two loads and a sum. Both loads and the store want the mask.
#
# </details>

# %% tags=["exercise"]
@triton.jit
def axpy(x, y, out, a, n, BLOCK: tl.constexpr):
    """out[i] = a * x[i] + y[i] for i < n; program p has the block p."""
    ### BEGIN SOLUTION
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    sum_ = a * tl.load(x + i, mask=inside, other=0.0) + tl.load(y + i, mask=inside, other=0.0)
    tl.store(out + i, sum_, mask=inside)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab16.axpy", axpy)

# %% [markdown]
# ## Exercise 4 · Two operations, one read
#
# **Outcome:** a fused kernel, and its bytes · **Difficulty:** ●●○ · **Time:** 20 min
#
# In every layer of a Llama the result of attention is added to the residual stream, and the sum is
# normed for the MLP. As two kernels, the sum goes to memory and comes back. As one, it is still
# there. One program has one row, which fits a tile: `BLOCK` ≥ M. Nothing of a row may be read
# twice.

# %%
def add_rmsnorm_spec(
    x_NM: Tensor, residual_NM: Tensor, weight_M: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """fp32 [N, M], [N, M], [M] -> the sum [N, M], and the sum normed [N, M]."""
    total_NM = x_NM + residual_NM
    mean_N1 = total_NM.square().mean(-1, keepdim=True)
    return total_NM, total_NM * torch.rsqrt(mean_N1 + eps) * weight_M


# %% [markdown]
# <details><summary>Hint 1: rows</summary>
#
# Rows may lie apart: `x_n` is the stride of `x` from row to row, so element i of row n is at
# `x + n * x_n + i`.
#
# </details>
# <details><summary>Hint 2: the mean</summary>
#
# `tl.sum(tile, 0)` adds the whole tile up. Lanes behind the row's end add nothing if they were
# loaded as 0; but how many numbers is it the mean of?
#
# </details>

# %% tags=["exercise"]
@triton.jit
def add_rmsnorm(
    x, residual, weight, total, normed, x_n, residual_n, total_n, normed_n, M, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Row n: total = x + residual; normed = total / sqrt(mean(total²) + eps) * weight."""
    ### BEGIN SOLUTION
    n = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < M
    both = tl.load(x + n * x_n + i, mask=inside, other=0.0)
    both += tl.load(residual + n * residual_n + i, mask=inside, other=0.0)
    tl.store(total + n * total_n + i, both, mask=inside)
    scale = 1.0 / tl.sqrt(tl.sum(both * both, 0) / M + eps)
    scaled = both * scale * tl.load(weight + i, mask=inside, other=0.0)
    tl.store(normed + n * normed_n + i, scaled, mask=inside)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab16.add_rmsnorm", add_rmsnorm)

# %% [markdown]
# What fusing is worth, in bytes: your kernel against the two operations one after the other.

# %% tags=["measure"]
N, M = 8, 576
x, residual = torch.randn(2, N, M, device=DEVICE)
weight = torch.ones(M, device=DEVICE)
total, normed = torch.empty(2, N, M, device=DEVICE)
strides = [t.stride(0) for t in (x, residual, total, normed)]
added = 4 * (2 * N * M + N * M)  # two in, one out
apart = added + 4 * (N * M + M + N * M)  # one in, the weight, one out
if DEVICE == "cpu":
    with watching() as seen:
        add_rmsnorm[(N,)](x, residual, weight, total, normed, *strides, M, 1e-5, BLOCK=1024)
    fused = seen.read + seen.written
    print(f"one kernel: {fused:,} bytes; two: {apart:,}; {1 - fused / apart:.0%} fewer")
else:
    add_rmsnorm[(N,)](x, residual, weight, total, normed, *strides, M, 1e-5, BLOCK=1024)
    print(f"two kernels would move {apart:,} bytes; on a GPU loads are not seen")
spec = add_rmsnorm_spec(x, residual, weight, 1e-5)
equal = all(torch.allclose(a, b, atol=1e-5) for a, b in zip((total, normed), spec))
print("equal to the spec:", equal)

# %% [markdown] tags=["solution"]
# A fifth fewer bytes, and one launch in the place of two. Such kernels are far below the ridge, so
# a fifth fewer bytes is a fifth less time. The same thought, taken further, is FlashAttention: keep
# the scores where they are.
