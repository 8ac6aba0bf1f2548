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
# # Lab 19 · Quantized pages
#
# You will write both ways through a page of codes as Triton kernels: numbers to codes when a token
# comes, codes to numbers inside a decode kernel, in registers and nowhere else. Each time the
# question is a few lines of PyTorch, the *spec*. Chapter 19 has the story, lab 18 the decode kernel
# that you will change.
#
# The letters are the book's: **B** sequences, **H** query heads, **K** KV heads, **G** = H/K, **D**
# head size, **C** tokens in a page, **N** tokens of a step. A *group* is some numbers that share a
# scale.

# %%
import torch
from torch import Tensor

import kvedu
from kvedu.kernels.interpret import kernel_device

DEVICE = kernel_device()  # before Triton is imported: "cpu" means its interpreter
import triton
import triton.language as tl

# %% [markdown]
# ## Exercise 1 · What a page takes
#
# **Outcome:** bytes with nothing forgotten · **Difficulty:** ●○○ · **Time:** 10 min
#
# A page holds the keys of C tokens, K heads of D numbers each, in codes of `bits` bits (8, 4 or 2).
# Each `group` neighbors of a head share a scale of 16 bits, and, if they are not `symmetric`, a
# zero point of 16 bits. Write `page_bytes(C, K, D, bits, group, symmetric)`. Groups divide D.

# %% [markdown]
# <details><summary>Hint</summary>
#
# Bytes of one token's head first: packed codes, then its groups.
#
# </details>

# %% tags=["exercise"]
def page_bytes(C, K, D, bits, group, symmetric):
    """Bytes of one page of keys: codes, scales, zero points."""
    ### BEGIN SOLUTION
    beside = 2 if symmetric else 4
    return C * K * (D * bits // 8 + D // group * beside)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab19.page_bytes", page_bytes)

# %% tags=["measure"]
plain = 16 * 8 * 128 * 2
for bits, group in ((8, 128), (8, 32), (4, 128), (4, 32), (2, 32)):
    factor = plain / page_bytes(16, 8, 128, bits, group, False)
    print(f"{bits} bits, groups of {group:3}: {factor:.2f} times smaller than 16 bits")

# %% [markdown]
# ## Exercise 2 · Into the page
#
# **Outcome:** codes and scales, written as tokens come · **Difficulty:** ●●○ · **Time:** 15 min
#
# Symmetric codes of 8 bits: the largest magnitude of a token's head gets code 127 or −127. The
# spec:

# %%
def code_spec(x_NKD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Codes int8 [N, K, D], scales [N, K], and what comes back; of a row of zeros all are 0."""
    scale_NK = x_NKD.abs().amax(-1) / 127
    safe_NK = torch.where(scale_NK == 0, 1.0, scale_NK)
    codes_NKD = (x_NKD / safe_NK[..., None]).round()
    return codes_NKD.to(torch.int8), scale_NK, codes_NKD * scale_NK[..., None]


# %% [markdown]
# Write `code_rows`: program (n, head) codes one head of one token. Its numbers lie at
# `x + n * x_n + head * x_k + d`, its codes go to `codes + n * c_n + head * c_k + d`, its scale to
# `scales + n * s_n + head`, and what comes back (the whole number times the scale, fp32) to
# `back + n * b_n + head * b_k + d`: that is what a model would go on with. D is a power of two.

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `tl.max(tl.abs(x), 0)` is the largest magnitude. Triton has no `round`: add a half and take the
# floor.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `.to(tl.int8)` cuts off what stands after the point, so round before it.
#
# </details>

# %% tags=["exercise"]
@triton.jit
def code_rows(x, codes, scales, back, x_n, x_k, c_n, c_k, s_n, b_n, b_k, D: tl.constexpr):
    """One program: one head of one token."""
    ### BEGIN SOLUTION
    n, head, d = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    x_D = tl.load(x + n * x_n + head * x_k + d)
    scale = tl.max(tl.abs(x_D), 0) / 127.0
    ratio_D = x_D / tl.where(scale == 0.0, 1.0, scale)
    code_D = tl.floor(ratio_D + 0.5)
    tl.store(codes + n * c_n + head * c_k + d, code_D.to(tl.int8))
    tl.store(scales + n * s_n + head, scale)
    tl.store(back + n * b_n + head * b_k + d, code_D * scale)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab19.code_rows", code_rows)

# %% tags=["measure"]
torch.manual_seed(0)
x_NKD = torch.randn(40, 3, 64).to(DEVICE)


def coded(x_NKD):
    """Codes, scales and what comes back, by `code_rows`."""
    N, K, D = x_NKD.shape
    codes, back = torch.empty_like(x_NKD, dtype=torch.int8), torch.empty_like(x_NKD)
    scales = x_NKD.new_empty(N, K)
    code_rows[(N, K)](
        x_NKD, codes, scales, back,
        *x_NKD.stride()[:2], *codes.stride()[:2], scales.stride(0), *back.stride()[:2], D,
    )  # fmt: skip
    return codes, scales, back


codes, scales, back_NKD = coded(x_NKD)
largest = ((back_NKD - x_NKD).abs() / scales[..., None]).max().item()
print(f"largest error: {largest:.2f} of a scale")

# %% [markdown]
# ## Exercise 3 · Two signs in a byte
#
# **Outcome:** codes of 4 bits, the negative ones too · **Difficulty:** ●●○ · **Time:** 10 min
#
# Codes −8 … 7 in two's complement take 4 bits: −1 is `1111`. Number d of a row lies in byte d // 2,
# in the low half where d is even, in the high half where it is odd. The spec:

# %%
def unpack_spec(packed_Nb: Tensor, scales_N: Tensor) -> Tensor:
    """Numbers [N, D] of packed codes [N, D / 2] (uint8), each row with its scale."""
    N, half = packed_Nb.shape
    out_ND = torch.empty(N, 2 * half)
    for n in range(N):
        for d in range(2 * half):
            byte = int(packed_Nb[n, d // 2])
            code = byte % 16 if d % 2 == 0 else byte // 16
            out_ND[n, d] = (code if code < 8 else code - 16) * scales_N[n]
    return out_ND


# %% [markdown]
# Write `unpack_rows`: program n writes row n. Bytes lie at `packed + n * p_n + d // 2`, results at
# `out + n * out_n + d`.

# %% [markdown]
# <details><summary>Hint</summary>
#
# Load the byte of each d (neighbors load the same one) and make it int32 with `.to(tl.int32)`. A
# shift by `d % 2 * 4` and `& 15` take out a code.
#
# </details>

# %% tags=["exercise"]
@triton.jit
def unpack_rows(packed, scales, out, p_n, out_n, D: tl.constexpr):
    """One program: one row of D numbers."""
    ### BEGIN SOLUTION
    n, d = tl.program_id(0), tl.arange(0, D)
    byte_D = tl.load(packed + n * p_n + d // 2).to(tl.int32)
    u_D = (byte_D >> (d % 2 * 4)) & 15
    code_D = tl.where(u_D < 8, u_D, u_D - 16)
    tl.store(out + n * out_n + d, code_D.to(tl.float32) * tl.load(scales + n))
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab19.unpack_rows", unpack_rows)

# %% [markdown]
# ## Exercise 4 · Decode over codes
#
# **Outcome:** little more than half the bytes of a cache, and no number written anywhere ·
# **Difficulty:** ●●● · **Time:** 25 min
#
# Pages hold codes of 8 bits `[P, C, K, D]`, and beside them scales `[P, C, K]`. The spec decodes,
# then attends:

# %%
def decode_codes_spec(
    q_BHD: Tensor, kc_PCKD: Tensor, ks_PCK: Tensor, vc_PCKD: Tensor, vs_PCK: Tensor,
    tables_BJ: Tensor, lengths_B: Tensor, scale: float,
) -> Tensor:  # fmt: skip
    """Attention [B, H, D] over the numbers that the codes stand for."""
    (B, H, D), (P, C, K, _) = q_BHD.shape, kc_PCKD.shape
    k_PCKD, v_PCKD = kc_PCKD * ks_PCK[..., None], vc_PCKD * vs_PCK[..., None]
    out_BHD = torch.empty_like(q_BHD)
    for b, length in enumerate(lengths_B.tolist()):
        pages = tables_BJ[b, : -(-length // C)].long()
        k_SKD, v_SKD = (x[pages].flatten(0, 1)[:length] for x in (k_PCKD, v_PCKD))
        for h in range(H):
            scores_S = k_SKD[:, h // (H // K)] @ q_BHD[b, h] * scale
            out_BHD[b, h] = torch.softmax(scores_S, 0) @ v_SKD[:, h // (H // K)]
    return out_BHD


# %% [markdown]
# Write `decode_codes`, a walk over the pages as in lab 18, program (head, b) for G query heads. It
# must load each code once, and *one* scale for each token, not one for each number:
#
# - Codes at `kc + page * c_p + c * c_c + head * c_k + d` (values: `vc`, the same strides); make
#   them fp32 in registers.
# - Scales at `ks + page * s_p + c * s_c + head * s_k` (values: `vs`). A key's scale may meet its
#   score *after* the product; a value's scale may meet its weight *before* the product.
# - Where no token is, codes and scales are rubbish (127 and NaN).

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Take your `decode` of lab 18. New are the scales' addresses and their two loads. What changes:
# both loads of codes make them fp32, and both products take in a scale.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `l` is the sum of the weights as the softmax has them. The values' scales belong to the second
# product only.
#
# </details>

# %% tags=["exercise"]
@triton.jit
def decode_codes(
    q, kc, ks, vc, vs, out, tables, lengths, q_b, q_h, c_p, c_c, c_k, s_p, s_c, s_k,
    table_b, out_b, out_h, scale,
    G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """One program: the G query heads of one KV head of one sequence, over pages of codes."""
    ### BEGIN SOLUTION
    head, b = tl.program_id(0), tl.program_id(1)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = (g < G)[:, None]
    q_GD = tl.load(q + b * q_b + (head * G + g)[:, None] * q_h + d[None, :], mask=real, other=0.0)
    length = tl.load(lengths + b)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(tl.cdiv(length, C)):
        page = tl.load(tables + b * table_b + j).to(tl.int64)
        seen = j * C + c < length
        at = page * c_p + c[:, None] * c_c + head * c_k + d[None, :]
        at_scale = page * s_p + c * s_c + head * s_k
        k_scale = tl.load(ks + at_scale, mask=seen, other=0.0)
        v_scale = tl.load(vs + at_scale, mask=seen, other=0.0)
        k_CD = tl.load(kc + at, mask=seen[:, None], other=0).to(tl.float32)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale * k_scale[None, :]
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(vc + at, mask=seen[:, None], other=0).to(tl.float32)
        acc = acc * shrink[:, None] + tl.dot(p * v_scale[None, :], v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab19.decode_codes", decode_codes)

# %% [markdown]
# Your kernels together: 40 tokens of 3 heads go through `code_rows` into pages, and `decode_codes`
# reads them. Against attention over the numbers as they were:

# %% tags=["measure"]
B, H, K, D, C = 1, 9, 3, 64, 16
order = torch.tensor([3, 0, 2], dtype=torch.int64, device=DEVICE)
k_NKD, v_NKD = torch.randn(2, 40, K, D).to(DEVICE)
q_BHD = torch.randn(B, H, D).to(DEVICE)
pages = []
for x_NKD in (k_NKD, v_NKD):
    codes, scales, _ = coded(x_NKD)
    place = torch.arange(40, device=DEVICE)
    for x, shape in ((codes, (4, C, K, D)), (scales, (4, C, K))):
        pages.append(torch.zeros(shape, dtype=x.dtype, device=DEVICE))
        pages[-1][order[place // C], place % C] = x
kc, ks, vc, vs = pages
tables, lengths = order[None].to(torch.int32), torch.tensor([40], dtype=torch.int32, device=DEVICE)


def attended():
    """Decode by your kernel: [B, H, D]."""
    out = torch.full_like(q_BHD, torch.nan)
    decode_codes[(K, B)](
        q_BHD, kc, ks, vc, vs, out, tables, lengths,
        *q_BHD.stride()[:2], *kc.stride()[:3], *ks.stride(), tables.stride(0), *out.stride()[:2],
        D**-0.5, H // K, 16, D, C,
    )  # fmt: skip
    return out


k_NHD, v_NHD = (x.repeat_interleave(H // K, 1) for x in (k_NKD, v_NKD))
weights = torch.softmax(torch.einsum("hd,nhd->hn", q_BHD[0], k_NHD) / D**0.5, -1)
exact = torch.einsum("hn,nhd->hd", weights, v_NHD)
error = (attended()[0] - exact).norm() / exact.norm()
print(f"error of attention by 8-bit codes: {error.item():.1%}")
if DEVICE == "cpu":
    from kvedu.kernels.watch import watching

    with watching() as counted:
        attended()
    cache, plain = counted.asked - q_BHD.nbytes, 2 * 40 * K * D * 2
    print(f"codes and scales: {cache:,} bytes asked for; in 16 bits {plain:,}: {cache / plain:.0%}")

# %% [markdown]
# ## Exercise 5 · Where is token t?
#
# **Outcome:** no half-written unit read, no token lost · **Difficulty:** ●●○ · **Time:** 15 min
#
# Where codes share a scale along the tokens, they are made by whole *units* of `unit` tokens, and
# the last `residual` tokens before a query are to be seen exactly. So a query with `before` tokens
# before it finds
#
# - a token as a code in a page, if it lies in a unit that is complete *and* wholly older than the
#   last `residual` ones,
# - the other tokens before it in the exact *tail*, a ring: token t at place t % W, with W =
#   `residual + unit - 1` places,
# - its own token, number `before`, among the step's fresh ones.
#
# Write `where_is(t, before, residual, unit, C)`: `("page", j, offset)` with j the number of the
# page in the sequence's table, `("tail", 0, place)`, or `("fresh", 0, 0)`. Units begin at token 0.

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which is the first token that is *not* a code? `max(0, before - residual)`, rounded down to whole
# units.
#
# </details>

# %% tags=["exercise"]
def where_is(t, before, residual, unit, C):
    """Where the query with so many tokens before it finds token t <= before."""
    ### BEGIN SOLUTION
    if t == before:
        return ("fresh", 0, 0)
    border = max(0, before - residual) // unit * unit
    return ("page", t // C, t % C) if t < border else ("tail", 0, t % (residual + unit - 1))
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab19.where_is", where_is)

# %% tags=["measure"]
for before in (15, 16, 40):
    found = [where_is(t, before, 8, 16, 16)[0] for t in range(before + 1)]
    counts = ", ".join(f"{kind} {found.count(kind):2}" for kind in ("page", "tail", "fresh"))
    print(f"{before} tokens before the query, 8 exact, units of 16: {counts}")

# %% [markdown] tags=["solution"]
# The border depends on `before` alone, not on how the tokens came. That is what makes a long prompt
# in one piece and the same prompt in chunks give the same text.
