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
# # Lab 17 · FlashAttention
#
# You will write three Triton kernels: the online log-sum, the merge of parts, and the tiled
# attention kernel itself. The question of each is a *spec*, a short PyTorch function with its types
# and shapes that can be checked at a glance; your kernel must equal it. At the end you write the
# test that would have found three famous slips. Chapter 17 has the story.
#
# The letters are the book's: **T** new tokens, **S** all tokens that have keys, **H** query heads,
# **K** KV heads, **G** = H/K, **D** head size, **N** rows of anything.

# %%
import math

import torch
from torch import Tensor

import kvedu
from kvedu.kernels.interpret import kernel_device
from kvedu.kernels.watch import watching

DEVICE = kernel_device()  # before Triton is imported: "cpu" means its interpreter
import triton
import triton.language as tl

_ = torch.set_grad_enabled(False)

# %% [markdown]
# ## A Triton kernel in one example
#
# A kernel is written for *one program*; the launch `kernel[grid](…)` starts as many as the grid
# says, and `tl.program_id(0)` tells a program which one it is. A tensor comes in as a pointer:
# `x + n * x_n + i` is the address of element `i` of row `n`, where `x_n` is the stride of rows.
# `tl.arange(0, BLOCK)` is a tile of whole numbers, and its length is a power of two known when the
# kernel is compiled (`tl.constexpr`). So the last tile mostly reaches past the end:
# `tl.load(address, mask=i < V, other=…)` and `tl.store(address, value, mask=…)` touch only what the
# mask lets through. This kernel doubles rows of any length:

# %%
@triton.jit
def double(x, out, x_n, out_n, V, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for first in tl.range(0, V, BLOCK):
        at = first + tl.arange(0, BLOCK)
        tile = tl.load(x + row * x_n + at, mask=at < V, other=0.0)
        tl.store(out + row * out_n + at, 2 * tile, mask=at < V)


x_NV = torch.arange(10.0, device=DEVICE).view(2, 5)
out_NV = torch.empty_like(x_NV)
double[(2,)](x_NV, out_NV, x_NV.stride(0), out_NV.stride(0), 5, BLOCK=4)
print(out_NV.tolist())

# %% [markdown]
# ## Exercise 1 · A row's log-sum, in one pass
#
# **Outcome:** the online softmax · **Difficulty:** ●●○ · **Time:** 20 min
#
# The spec is one line. Your kernel has one program for each row and walks over it *once*, in tiles
# of `BLOCK`. It must hold for scores of −300 and of 300, for rows that begin with whole tiles of
# −∞, and for a row that is nothing but −∞ (its log-sum is −∞).

# %%
def log_sum_spec(x_NV: Tensor) -> Tensor:
    """fp32 [N, V] -> fp32 [N]: natural logarithm of the sum of exponentials of each row."""
    return torch.logsumexp(x_NV, dim=-1)


# %% [markdown]
# <details><summary>Hint 1: what to carry along</summary>
#
# The maximum `m` and the sum `l`; `tl.max(tile, 0)` and `tl.sum(tile, 0)` give a tile's own.
#
# </details>
# <details><summary>Hint 2: −∞</summary>
#
# As long as the maximum is −∞, subtract 0 instead of it: `tl.where(…, 0.0, …)`. `tl.log` of 0 is
# −∞.
#
# </details>
# <details><summary>Hint 3: one number out</summary>
#
# `tl.store(out + n + tl.arange(0, 1), …)` stores a tile of one number.
#
# </details>

# %% tags=["exercise"]
@triton.jit
def log_sum(x, out, x_n, V, BLOCK: tl.constexpr):
    """out[n] = log(sum(exp(x[n, :V]))), one program a row, one pass; rows lie x_n apart."""
    n = tl.program_id(0)
    m = tl.full([1], float("-inf"), tl.float32)  # maximum so far
    l = tl.zeros([1], tl.float32)  # sum so far, of exp(x - m)
    ### BEGIN SOLUTION
    for start in tl.range(0, V, BLOCK):
        i = start + tl.arange(0, BLOCK)
        s = tl.load(x + n * x_n + i, mask=i < V, other=float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 0))
        safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        l = l * tl.exp(m - safe) + tl.sum(tl.exp(s - safe), 0)
        m = m_new
    tl.store(out + n + tl.arange(0, 1), m + tl.log(l))
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab17.log_sum", log_sum)

# %% [markdown]
# ## Exercise 2 · Parts, merged
#
# **Outcome:** partial results put together by their log-sums · **Difficulty:** ●●○ ·
# **Time:** 15 min
#
# A long cache was attended to in S parts, each by a program of its own. Every part has left a
# result that is already divided by its own sum, and its log-sum. Some parts saw nothing: their
# log-sum is −∞, and *their memory was never written*; it may hold anything. One program merges one
# row.

# %%
def merge_spec(parts_NSD: Tensor, logs_NS: Tensor) -> Tensor:
    """fp32 [N, S, D] and natural log-sums [N, S] -> fp32 [N, D]; a row of empty parts is 0."""
    out_ND = torch.zeros(len(parts_NSD), parts_NSD.shape[2])
    for n, logs_S in enumerate(logs_NS):
        used = logs_S > -math.inf
        if used.any():
            out_ND[n] = torch.softmax(logs_S[used], 0) @ parts_NSD[n, used]
    return out_ND


# %% [markdown]
# <details><summary>Hint</summary>
#
# Load the log-sums first, as a tile of `BLOCK` (with −∞ behind the last part), and make weights of
# them. Then load the tile `[BLOCK, D]` of results with a mask that leaves out every part that
# weighs nothing: `mask=(w > 0)[:, None]`, `other=0.0`.
#
# </details>

# %% tags=["exercise"]
@triton.jit
def merge(
    parts, logs, out, parts_n, parts_s, logs_n, out_n, S, D: tl.constexpr, BLOCK: tl.constexpr
):
    """out[n, :D] = the S results parts[n, s, :D], weighted by exp(logs[n, s]); S <= BLOCK."""
    n = tl.program_id(0)
    s = tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    ### BEGIN SOLUTION
    log = tl.load(logs + n * logs_n + s, mask=s < S, other=float("-inf"))
    top = tl.max(log, 0)
    w = tl.exp(log - tl.where(top == float("-inf"), 0.0, top))
    at = parts + n * parts_n + s[:, None] * parts_s + d[None, :]
    part = tl.load(at, mask=(w > 0.0)[:, None], other=0.0)
    total = tl.sum(w, 0)
    merged = tl.sum(part * w[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    tl.store(out + n * out_n + d, merged)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab17.merge", merge)

# %% [markdown]
# ## Exercise 3 · The tiled kernel
#
# **Outcome:** FlashAttention's loop · **Difficulty:** ●●● · **Time:** 30 min
#
# The spec is the definition, a head at a time. One program has a block of `BLOCK_T` tokens of one
# query head. The tile of queries is loaded for you, and what the loop leaves is divided and stored.
# You write the loop: over tiles of `BLOCK_S` keys, no further than the block's last token may see.
# Nothing else is loaded, and nothing twice.

# %%
def flash_spec(q_THD: Tensor, k_SKD: Tensor, v_SKD: Tensor) -> Tensor:
    """fp32 [T, H, D], [S, K, D], [S, K, D] -> fp32 [T, H, D]: the last T of S tokens attend."""
    (T, H, D), (S, K, _) = q_THD.shape, k_SKD.shape
    places = torch.arange(S, device=q_THD.device)
    hidden_TS = places > places[S - T :, None]
    out_THD = torch.empty_like(q_THD)
    for h in range(H):
        k_SD, v_SD = k_SKD[:, h // (H // K)], v_SKD[:, h // (H // K)]
        scores_TS = q_THD[:, h] @ k_SD.T / math.sqrt(D)
        out_THD[:, h] = scores_TS.masked_fill(hidden_TS, -math.inf).softmax(-1) @ v_SD
    return out_THD


# %% [markdown]
# <details><summary>Hint 1: the tiles</summary>
#
# Keys as `[BLOCK_S, D]`:
# `tl.load(k + s[:, None] * k_s + (h // G) * k_h + d[None, :], mask=…, other=0.0)`. Scores are
# `tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * scale`, of shape `[BLOCK_T, BLOCK_S]`.
#
# </details>
# <details><summary>Hint 2: who sees what</summary>
#
# The query in row `t` stands at position `S - T + t`. The block's last one is at
# `S - T + (block + 1) * BLOCK_T - 1`, or at the end of the sequence.
#
# </details>
# <details><summary>Hint 3: the state</summary>
#
# As in exercise 1, a row of it for every query: `tl.max(scores, 1)`. What shrinks the sum also
# shrinks the accumulator, as `[:, None]`.
#
# </details>

# %% tags=["exercise"]
@triton.jit
def flash(
    q, k, v, out, q_t, q_h, k_s, k_h, v_s, v_h, out_t, out_h, T, S, scale,
    G: tl.constexpr, D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """Program (block of tokens, query head): out[t, h] of flash_spec.

    q_t is the stride of q's axis T, and so on.
    """
    block = tl.program_id(0)
    h = tl.program_id(1)
    t = block * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.arange(0, D)
    q_tile = tl.load(q + t[:, None] * q_t + h * q_h + d[None, :], mask=t[:, None] < T, other=0.0)
    m = tl.full([BLOCK_T], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_T], tl.float32)
    acc = tl.zeros([BLOCK_T, D], tl.float32)
    ### BEGIN SOLUTION
    last = S - T + t
    end = tl.minimum(S, S - T + (block + 1) * BLOCK_T)
    for start in tl.range(0, end, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        inside = s[:, None] < end
        k_tile = tl.load(k + s[:, None] * k_s + (h // G) * k_h + d[None, :], mask=inside, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * scale
        scores = tl.where(s[None, :] <= last[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp(scores - m_new[:, None])
        shrink = tl.exp(m - m_new)
        l = l * shrink + tl.sum(p, 1)
        v_tile = tl.load(v + s[:, None] * v_s + (h // G) * v_h + d[None, :], mask=inside, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_tile, input_precision="ieee")
        m = m_new
    ### END SOLUTION
    to = out + t[:, None] * out_t + h * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=t[:, None] < T)


# %% tags=["check"]
kvedu.check("lab17.flash", flash)

# %% [markdown]
# Your kernel at work on 96 tokens, with blocks of two sizes. In the interpreter we can see what it
# loads. The spec writes a matrix of scores for each head, and reads it again.

# %% tags=["measure"]
def attention(q_THD, k_SKD, v_SKD, BLOCK_T):
    """Launch flash."""
    (T, H, D), (S, K, _) = q_THD.shape, k_SKD.shape
    out_THD = torch.empty_like(q_THD)
    strides = [n for x in (q_THD, k_SKD, v_SKD, out_THD) for n in x.stride()[:2]]
    grid = (triton.cdiv(T, BLOCK_T), H)
    flash[grid](
        q_THD, k_SKD, v_SKD, out_THD, *strides, T, S, 1 / math.sqrt(D),
        G=H // K, D=D, BLOCK_T=BLOCK_T, BLOCK_S=16,
    )  # fmt: skip
    return out_THD


_ = torch.manual_seed(0)
n, H, K, D = 96, 6, 2, 32
q_THD, k_SKD, v_SKD = (torch.randn(n, heads, D, device=DEVICE) for heads in (H, K, K))
wanted = flash_spec(*(x.cpu() for x in (q_THD, k_SKD, v_SKD)))
for rows in (16, 32):
    if DEVICE == "cpu":
        with watching() as seen:
            got = attention(q_THD, k_SKD, v_SKD, rows)
        loads = f"{seen.asked:,} bytes loaded, {seen.flops:,} FLOPs"
    else:
        got = attention(q_THD, k_SKD, v_SKD, rows).cpu()
        loads = "compiled for a GPU: loads are not seen"
    equal = torch.allclose(got, wanted, atol=1e-4)
    print(f"blocks of {rows} tokens: equal to the spec: {equal}; {loads}")
print(f"the spec's scores, written and read twice: {4 * H * n * n * 4:,} bytes")

# %% [markdown] tags=["solution"]
# Twice the rows, far fewer loads, and about as many FLOPs: only whole tiles on the diagonal add
# some. The library's kernel loads keys a third as often here, since the rows of its block are the G
# heads of a group times some tokens, so that a KV head's keys are loaded once for all of them.
# Worth trying.

# %% [markdown]
# ## Exercise 4 · A test that sees
#
# **Outcome:** one row of scores that three broken kernels cannot pass · **Difficulty:** ●●○ ·
# **Time:** 15 min
#
# Three kernels for `log_sum_spec` are broken: one forgets to shrink its sum when the maximum grows;
# one loads 0 behind the end of a row, instead of −∞; one subtracts no maximum at all. Somebody's
# test uses `torch.randn`. Here is how it goes:

# %%
def broken_log_sums(x_V, block):
    """What the three give for one row, in PyTorch."""
    m, l = torch.tensor(-math.inf), 0.0
    for start in range(0, len(x_V), block):
        tile = x_V[start : start + block]
        m = torch.maximum(m, tile.max())
        l = l + (tile - m).exp().sum()  # the old sum stays as it was
    zeros = x_V.new_zeros(-len(x_V) % block)
    return {
        "forgets to shrink": m + l.log(),
        "zeros behind the end": torch.cat((x_V, zeros)).logsumexp(0),
        "no maximum": x_V.exp().sum().log(),
    }


def compare(row, block):
    """Print the log-sum of a row, and what the three say."""
    for name, x in {"right": row.logsumexp(0), **broken_log_sums(row, block)}.items():
        print(f"{name:22}{x:9.3f}")


_ = torch.manual_seed(4)
compare(torch.randn(21), 8)

# %% [markdown]
# Write `revealing_row(V, block)`: *one* row of V finite numbers on which each of the three is wrong
# by more than 0.01 (or gives NaN or infinity). V is never a multiple of `block`.

# %% [markdown]
# <details><summary>Hint</summary>
#
# What must the scores do from tile to tile? How far from 0, and on which side of it, must they lie?
#
# </details>

# %% tags=["exercise"]
def revealing_row(V, block):
    """Scores [V], finite, on which every one of the three broken kernels is wrong."""
    ### BEGIN SOLUTION
    return torch.linspace(-300.0, -200.0, V)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab17.revealing_row", revealing_row)

# %% tags=["measure"]
compare(revealing_row(21, 8), 8)

# %% [markdown] tags=["solution"]
# Scores that rise from tile to tile give a new maximum each time, so a sum that is not shrunk
# counts old tiles too much. Far below 0, a lane that was loaded as 0 outweighs all real ones, and
# every exponential is 0 where no maximum was subtracted. Numbers from `torch.randn` lie near 0:
# there the third kernel cannot be wrong, and the second is wrong by little.
