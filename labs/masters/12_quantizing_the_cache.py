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
# # Lab 12 · Quantizing the cache
#
# You will write what a quantized cache is made of: scales and zero points, two codes in a byte, a
# page coded by rows or by columns. With it you find the channel that spoils a page of real keys,
# and mend a cache that codes prompts and forgets to code what is generated. Chapter 12 has the
# story.
#
# The letters are the book's: **C** tokens in a page, **D** head size, **S** cached tokens. A *code*
# is a whole number from 0 to $2^b - 1$, with b *bits*. A *group* is some numbers that share a scale
# and a zero point.

# %%
import torch

import kvedu
from kvedu import ConcatCache, texts

_ = torch.set_grad_enabled(False)

# %% [markdown]
# ## Exercise 1 · What a number really takes
#
# **Outcome:** bits per number, with nothing forgotten · **Difficulty:** ●○○ · **Time:** 5 min
#
# "4 bits" is the size of a code. Each group of `group` numbers also stores a scale of `scale_bits`
# bits, and an *asymmetric* one a zero point of the same size. Write
# `bits_per_number(bits, group, symmetric, scale_bits=16)`: the bits that one number takes, its
# share of scale and zero point included, as a float. Groups are full.

# %% [markdown]
# <details><summary>Hint</summary>
#
# Count the bits of a whole group, then divide.
#
# </details>

# %% tags=["exercise"]
def bits_per_number(bits, group, symmetric, scale_bits=16):
    """Stored bits of one number: its code, and its share of scale and zero point."""
    ### BEGIN SOLUTION
    return bits + scale_bits * (1 if symmetric else 2) / group
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab12.bits_per_number", bits_per_number)

# %% tags=["measure"]
print("times smaller than 16 bits")
print("groups of" + "".join(f"{group:6}" for group in (8, 32, 64, 128)))
for bits in (8, 4, 2):
    sizes = [bits_per_number(bits, group, symmetric=False) for group in (8, 32, 64, 128)]
    print(f"{bits} bits   " + "".join(f"{16 / size:6.1f}" for size in sizes))

# %% [markdown]
# ## Exercise 2 · A group to codes
#
# **Outcome:** codes that bring every number back within half a step · **Difficulty:** ●●○ ·
# **Time:** 10 min
#
# Write `to_codes(x_n, bits)`: it returns `(codes, scale, zero)` of a group of numbers. `zero` is
# the lowest number and has code 0; the highest number has the highest code; all others are rounded
# to the nearest code between. `codes` is a tensor of `torch.uint8`, `scale` and `zero` are floats.
# `from_codes` brings the numbers back.

# %%
def from_codes(codes, scale, zero):
    """Numbers from codes."""
    return codes.to(torch.float32) * scale + zero


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Between 4 codes there are 3 steps.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# If all numbers are equal, the scale is 0. What must not happen then?
#
# </details>

# %% tags=["exercise"]
def to_codes(x_n, bits):
    """Codes, scale and zero point of one group."""
    ### BEGIN SOLUTION
    zero = x_n.min().item()
    scale = (x_n.max().item() - zero) / (2**bits - 1)
    if scale == 0:
        return torch.zeros_like(x_n, dtype=torch.uint8), 0.0, zero
    codes = ((x_n - zero) / scale).round().clamp(0, 2**bits - 1)
    return codes.to(torch.uint8), scale, zero
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab12.to_codes", to_codes)

# %% tags=["measure"]
x_n = torch.tensor([-1.0, -0.4, 0.1, 0.5, 1.2])
for stands_out in (1.2, 12.0):
    x_n[-1] = stands_out
    codes, scale, zero = to_codes(x_n, 2)
    back_n = from_codes(codes, scale, zero)
    for name, numbers in (("numbers", x_n), ("codes", codes), ("back", back_n)):
        print(f"{name:8}" + "".join(f"{x:8.3g}" for x in numbers.tolist()))

# %% [markdown]
# One number that stands out has left one code for all the others. Remember it.
#
# ## Exercise 3 · Two codes in a byte
#
# **Outcome:** memory that is really saved · **Difficulty:** ●●○ · **Time:** 10 min
#
# A code of 4 bits in a `uint8` saves nothing: half of the byte is always zero. Write
# `pack_pairs(codes_n)`: two codes in each byte, the first one of a pair in the *low* four bits, the
# second in the high four. An odd last code has a byte of its own, whose high half is 0. And write
# `unpack_pairs(packed, n)`, which gives the n codes back. Codes and bytes are `torch.uint8`.

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `codes[0::2]` are the even places, `codes[1::2]` the odd ones. `a << 4` moves four bits up,
# `byte & 15` keeps the low four.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Make the number of codes even first. `torch.stack((low, high), dim=-1).flatten()` puts two tensors
# in turn.
#
# </details>

# %% tags=["exercise"]
def pack_pairs(codes_n):
    """Two codes of 4 bits in each byte, the first in the low half."""
    ### BEGIN SOLUTION
    codes = torch.cat((codes_n, codes_n.new_zeros(len(codes_n) % 2)))
    return codes[0::2] | (codes[1::2] << 4)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab12.pack_pairs", pack_pairs)

# %% tags=["exercise"]
def unpack_pairs(packed, n):
    """The n codes that were packed."""
    ### BEGIN SOLUTION
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten()[:n]
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab12.unpack_pairs", unpack_pairs)

# %% tags=["measure"]
codes = torch.arange(11, dtype=torch.uint8)
packed = pack_pairs(codes)
print(f"{len(codes)} codes in {packed.nbytes} bytes:", *(f"{byte:08b}" for byte in packed.tolist()))
print("back:", *unpack_pairs(packed, 11).tolist())

# %% [markdown]
# ## Exercise 4 · By rows or by columns
#
# **Outcome:** both ways to share a scale · **Difficulty:** ●●○ · **Time:** 10 min
#
# A page holds the keys (or the values) of one head for C tokens: a table `page_CD`, a row for each
# token, a column for each channel. Write `through_codes(page_CD, bits, per)`: the page as it comes
# back. With `per="token"` each row is a group, with `per="channel"` each column.

# %% [markdown]
# <details><summary>Hint</summary>
#
# `page_CD.amin(dim=1, keepdim=True)` has the lowest number of each row, in a shape that fits the
# page. Mind groups without a range.
#
# </details>

# %% tags=["exercise"]
def through_codes(page_CD, bits, per):
    """A page to codes and back; groups are rows ("token") or columns ("channel")."""
    ### BEGIN SOLUTION
    dim = 1 if per == "token" else 0
    zero = page_CD.amin(dim, keepdim=True)
    scale = (page_CD.amax(dim, keepdim=True) - zero) / (2**bits - 1)
    steps = (page_CD - zero) / torch.where(scale == 0, 1.0, scale)
    return steps.round() * scale + zero
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab12.through_codes", through_codes)

# %% [markdown]
# A page of the real model: keys and values of a layer near the end, for 64 tokens of a story.

# %% tags=["measure"]
model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu")
ids = model.tokenizer.encode(texts.read("story"))[:64]
cache = ConcatCache(model.config)
seq = cache.add()
with cache.step({seq: len(ids)}) as view:
    model.hidden(torch.tensor(ids), view)
    keys_SKD, values_SKD, _ = view.gather(27, seq)
pages = {"keys": keys_SKD[:, 2].clone(), "values": values_SKD[:, 2].clone()}


def error(page_CD, back_CD):
    """Length of the error over the length of the page."""
    return ((back_CD - page_CD).norm() / page_CD.norm()).item()


print(f"{'layer 27, head 2':21}{'per token':>15}{'per channel':>15}")
for bits in (8, 4, 2):
    for name, page_CD in pages.items():
        found = [error(page_CD, through_codes(page_CD, bits, per)) for per in ("token", "channel")]
        print(f"{f'{name}, {bits} bits: error':21}" + "".join(f"{x:15.1%}" for x in found))

# %% [markdown]
# ## Exercise 5 · The channel that spoils the page
#
# **Outcome:** an outlier, found by what it does to the others · **Difficulty:** ●●● ·
# **Time:** 15 min
#
# Per token, the keys come back far worse. Some channel stretches every row's range. Which one? Not
# always the one with the largest number, nor the one that varies most. Ask the others: write
# `spoiler(page_CD, bits)`, the number of the channel without which *the other channels* come back
# best when they are coded per token. Best: the smallest sum of squared errors over them.

# %% [markdown]
# <details><summary>Hint</summary>
#
# For each channel: the page without that column, through codes, its squared error.
# `torch.cat((page[:, :d], page[:, d + 1 :]), dim=1)` leaves a column out.
#
# </details>

# %% tags=["exercise"]
def spoiler(page_CD, bits):
    """The channel without which the others come back best, per token."""
    ### BEGIN SOLUTION
    errors = []
    for d in range(page_CD.shape[1]):
        rest = torch.cat((page_CD[:, :d], page_CD[:, d + 1 :]), dim=1)
        errors.append(((through_codes(rest, bits, "token") - rest) ** 2).sum().item())
    return errors.index(min(errors))
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab12.spoiler", spoiler)

# %% tags=["measure"]
page_CD = pages["keys"]
left, apart = page_CD, []
print(f"4 bits per token: error {error(page_CD, through_codes(page_CD, 4, 'token')):.1%}")
numbers = list(range(page_CD.shape[1]))
for _ in range(4):
    d = spoiler(left, 4)
    apart.append(numbers.pop(d))
    left = torch.cat((left[:, :d], left[:, d + 1 :]), dim=1)
    back_CD = page_CD.clone()
    back_CD[:, numbers] = through_codes(page_CD[:, numbers], 4, "token")
    names = ", ".join(map(str, apart))
    print(f"stored apart: {names:14} error {error(page_CD, back_CD):.1%}")
print(f"4 bits per channel: error {error(page_CD, through_codes(page_CD, 4, 'channel')):.1%}")
sizes = page_CD.abs().mean(0)
print("mean size of these channels:", *(f"{sizes[d]:.1f}" for d in apart), end="; ")
print(f"of the median channel: {sizes.median():.1f}")

# %% [markdown] tags=["solution"]
# A few numbers of a token, kept in full precision, win back a good part of what was lost: that is
# the mixed precision of `caches.outliers`. A scale for each channel wins more, for no more bytes,
# because each channel then only has to be like itself.

# %% [markdown]
# ## Exercise 6 · The tail that grows
#
# **Outcome:** codes that do not depend on how tokens came · **Difficulty:** ●●○ · **Time:** 15 min
#
# Per channel, tokens are coded by whole groups, and the newest ones are best kept exact. So a cache
# has a *tail*: it keeps the last `residual` tokens exact, and what does not fill a group yet.
# `Tail` is such a cache, for one head. (It stores what it would code, so that you can see it.) All
# its tests send a prompt.

# %%
class Tail:
    """Tokens in groups to be coded, oldest first, and an exact tail of the newest ones."""

    def __init__(self, residual, group, D):
        self.residual, self.group = residual, group
        self.coded = []  # tensors [group, D]
        self.tail = torch.empty(0, D)

    def append(self, x_TD):
        """Take in T new tokens; code what can be coded."""
        self.tail = torch.cat([self.tail, x_TD])
        n = max(0, len(x_TD) - self.residual) // self.group * self.group
        for start in range(0, n, self.group):
            self.coded.append(self.tail[start : start + self.group])
        self.tail = self.tail[n:]


tail = Tail(residual=8, group=4, D=2)
tail.append(torch.randn(40, 2))
print(f"a prompt of 40: {len(tail.coded)} groups coded, {len(tail.tail)} tokens exact")
for _ in range(1000):
    tail.append(torch.randn(1, 2))
coded, exact = len(tail.coded), len(tail.tail)
print(f"1,000 generated tokens later: {coded} groups coded, {exact:,} tokens exact")

# %% [markdown]
# The quantized cache has become an ordinary one. Mend it: write `append` anew. After every call the
# tail must hold at least the last `residual` tokens (or all there are), and never as many as
# `residual + group`; groups go from the old end, in order.

# %% [markdown]
# <details><summary>Hint</summary>
#
# How much can be coded is a question about the tail, not about the call.
#
# </details>

# %% tags=["exercise"]
class MendedTail(Tail):
    def append(self, x_TD):
        """Take in T new tokens; code every group that leaves `residual` tokens behind it."""
        ### BEGIN SOLUTION
        self.tail = torch.cat((self.tail, x_TD))
        while len(self.tail) >= self.residual + self.group:
            self.coded.append(self.tail[: self.group])
            self.tail = self.tail[self.group :]
        ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab12.mended_tail", MendedTail)

# %% tags=["measure"]
tail = MendedTail(residual=8, group=4, D=2)
for n in (40, *[1] * 1000):
    tail.append(torch.randn(n, 2))
coded, exact = len(tail.coded), len(tail.tail)
print(f"a prompt of 40 and 1,000 tokens later: {coded} groups coded, {exact} tokens exact")

# %% [markdown] tags=["solution"]
# Real libraries have had this fault. Text and perplexity do not show it, they even get better; only
# a look at the bytes does. So measure the bytes of a cache that is said to be small, after it has
# generated for a while.
