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
# # Lab 20 · Graphs and launch overhead
#
# You will say who waits for whom, host or device; choose the recording that serves a step; copy a
# step to where a recording reads it, and run the real model with it; and write the kernel that
# turns keys on their way into the pages, and moves no byte twice. Chapter 20 has the story.
#
# The letters are the book's: **B** rows of a step, **J** pages of a sequence, **P** pages in all,
# **C** tokens in a page, **K** KV heads, **D** head size, **E** = D/2.

# %%
import torch
from torch import Tensor

import kvedu
from kvedu.kernels.interpret import kernel_device

DEVICE = kernel_device()  # before Triton is imported: "cpu" means its interpreter
import triton
import triton.language as tl

from kvedu.analysis.hardware import hardware
from kvedu.kernels import rope_write
from kvedu.kernels.watch import watching

_ = torch.set_grad_enabled(False)

# %% [markdown]
# ## Exercise 1 · Who waits for whom
#
# **Outcome:** the time of a step from its kernels and its launches · **Difficulty:** ●○○ ·
# **Time:** 10 min
#
# The host asks for one kernel after the other, and asking takes `launch` µs each. The device runs a
# kernel as soon as it has been asked for and the one before is done. Write `finish(times, launch)`:
# `times` are the kernels' own times in µs, in order. Return the pair of the moment at which the
# device is done, counted from the moment at which the host begins to ask, and of the time that the
# device was idle until then.

# %% [markdown]
# <details><summary>Hint</summary>
#
# Kernel number i, counted from 1, has been asked for at `i * launch`. Keep the moment at which the
# device is free.
#
# </details>

# %% tags=["exercise"]
def finish(times, launch):
    """(when the device is done, how long it was idle), in µs."""
    ### BEGIN SOLUTION
    free = busy = 0.0
    for number, took in enumerate(times, 1):
        free = max(free, number * launch) + took
        busy += took
    return free, free - busy
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab20.finish", finish)

# %% [markdown]
# Now real kernels. What does a decode step of the book's model launch, and how many bytes does each
# launch move? The library counts it without a GPU (`kvedu.kernels.launches`). An H200's datasheet
# turns bytes into the least time. How long must a launch take for the device to be idle half of the
# time?

# %% tags=["measure"]
from kvedu.viz.launches import data, unrolled

made = data(models=("SmolLM2-135M",))["models"][0]
bandwidth = hardware("H200-SXM").bandwidth


def idle_share(times, launch):
    """Share of a step in which the device waits."""
    end, idle = finish(times, launch)
    return idle / end


print(f"{'':24}{'launches':>9}{'0.25 µs':>9}{'1 µs':>6}{'5 µs':>6}{'half idle from':>17}")
for name, step in (("apart", made["apart"]), ("fused", made["fused"])):
    for batch in (1, 64):
        times = [1e6 * size / bandwidth for size in unrolled(step, batch, 2048)]
        low, high = 0.0, 100.0
        while high - low > 0.01:  # the share grows with the time of a launch
            middle = (low + high) / 2
            low, high = (low, middle) if idle_share(times, middle) >= 0.5 else (middle, high)
        shares = [f"{idle_share(times, launch):.0%}" for launch in (0.25, 1, 5)]
        line = f"{shares[0]:>9}{shares[1]:>6}{shares[2]:>6}{high:14.1f} µs"
        print(f"{f'{name}, sequences: {batch:2}':24}{len(times):9}{line}")

# %% [markdown] tags=["solution"]
# The last column answers the question. With one sequence the device is half idle even if a launch
# takes less than a microsecond; with 64 sequences and fused kernels, only from some 5 µs on. More
# sequences do not take more launches, and give each kernel more to do. Fewer launches help too, but
# less. A recording takes away the host's calls: it asks once. On the device the kernels stay apart,
# and between one and the next a gap of about a microsecond is left.

# %% [markdown]
# ## Exercise 2 · The ladder
#
# **Outcome:** the recording that serves a step, and what padding costs · **Difficulty:** ●○○ ·
# **Time:** 10 min
#
# Steps have been recorded for the numbers of rows in `ladder`, in no particular order. `running`
# says how many sequences run in each of some steps. A recording of n rows serves n sequences or
# fewer. Where none is large enough, the step runs plain. Write `rungs(ladder, running)`. Return the
# pair of
#
# - a list: for each step the rows of the smallest recording that serves it, or `None`;
# - of all rows of the replayed steps, the share that is for nobody, a float; 0.0 where nothing is
#   replayed.

# %% [markdown]
# <details><summary>Hint</summary>
#
# `min(..., default=None)`. For the share add up rows and idle rows over all replayed steps, and
# divide once.
#
# </details>

# %% tags=["exercise"]
def rungs(ladder, running):
    """(rows of each step's recording, or None; the share of recorded rows that is for nobody)."""
    ### BEGIN SOLUTION
    taken = [min((size for size in ladder if size >= n), default=None) for n in running]
    replayed = [(size, n) for size, n in zip(taken, running) if size is not None]
    rows = sum(size for size, _ in replayed)
    return taken, (rows - sum(n for _, n in replayed)) / rows if rows else 0.0
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab20.rungs", rungs)

# %% [markdown]
# A day of a server: the number of running sequences wanders between 1 and 270. Which ladder would
# you take?

# %% tags=["measure"]
from kvedu.engine.graphs import LADDER

day, n = [], 40
for word in torch.randint(-9, 10, (5000,), generator=torch.Generator().manual_seed(0)).tolist():
    n = min(270, max(1, n + word))
    day.append(n)
ladders = {
    "powers of two": [2**i for i in range(9)],
    "the library's": LADDER,
    "eights": range(8, 257, 8),
    "one": [256],
}
print(f"{'':14}{'recordings':>11}{'rows for nobody':>17}{'steps plain':>13}")
for name, ladder in ladders.items():
    taken, share = rungs(ladder, day)
    print(f"{name:14}{len(ladder):11}{share:17.0%}{taken.count(None) / len(day):13.0%}")

# %% [markdown]
# ## Exercise 3 · Tensors that stay
#
# **Outcome:** a step that can be replayed · **Difficulty:** ●●○ · **Time:** 15 min
#
# A recording reads from five tensors, always the same ones: `buffers` is a dictionary of `ids`,
# `positions`, `slots` and `lengths`, int64 `[B]`, and `tables`, int64 `[B, J]`. Write
# `load(buffers, rows, C, spare)`: it copies a step in and returns nothing. `rows` holds
# `(token, t, pages)` for each sequence, at most B of them: its newest token, that token's position,
# and its pages in order.
#
# - `slots`: where the new key goes, `page * C + place`. `lengths`: tokens that the sequence holds,
#   the new one among them.
# - Unused entries of a table are 0.
# - Rows that nobody needs do all the work, too. Let them be token 0 at position 0 of a sequence
#   whose only page is `spare`.
#
# What an earlier step left in the tensors is still there.

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `buffers["ids"] = torch.tensor(...)` puts another tensor into the dictionary. Who reads it?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# First make B rows of the step: add `(0, 0, [spare])` until there are B. Then all rows are alike.
#
# </details>

# %% tags=["exercise"]
def load(buffers, rows, C, spare):
    """Copy a step into the tensors of a recording."""
    ### BEGIN SOLUTION
    B, J = buffers["tables"].shape
    rows = [*rows, *[(0, 0, [spare])] * (B - len(rows))]
    for b, (token, t, pages) in enumerate(rows):
        buffers["ids"][b] = token
        buffers["positions"][b] = t
        buffers["slots"][b] = pages[t // C] * C + t % C
        buffers["lengths"][b] = t + 1
        buffers["tables"][b] = torch.tensor([*pages, *[0] * (J - len(pages))])
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab20.load", load)

# %% [markdown]
# Under the real model. A step of four rows is recorded (on a CPU a recording calls its function
# again, see chapter 20), two people are served by it, and a third one leaves early. The answers
# must be those of plain steps.

# %% tags=["measure"]
from kvedu.caches.paged import PagedCache
from kvedu.engine.graphs import Again
from kvedu.kernels.paged_attention import PagedLayout
from kvedu.model.fused_decode import fused_decode

model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu")
tokenizer = model.tokenizer
beginnings = (
    "The capital of France is",
    "Roses are red, violets are",
    "Water boils at a temperature of",
)
prompts = [tokenizer.encode(text) for text in beginnings]


def answers(record, C=16, n=(6, 4, 2)):
    """Greedy tokens of three prompts, by plain steps or by a recording of four rows."""
    cache = PagedCache(model.config, n_pages=8, page_size=C, spare=True, device=model.device)
    seqs = [cache.add() for _ in prompts]
    with cache.step(dict(zip(seqs, map(len, prompts)))) as view:
        found = model(torch.tensor(sum(prompts, [])), view, view.last_rows)
    said = [[int(x.argmax())] for x in found]
    shapes = {"ids": (4,), "positions": (4,), "slots": (4,), "lengths": (4,), "tables": (4, 2)}
    buffers = {name: torch.zeros(shape, dtype=torch.int64) for name, shape in shapes.items()}
    given, logits_BV = dict(buffers), torch.zeros(4, model.config.V)

    def work():
        rows = torch.stack((torch.arange(4), torch.ones(4).long(), given["lengths"] - 1), 1)
        layout = PagedLayout(given["tables"].int(), rows, one_each=True)
        step = given["ids"], given["positions"], given["slots"]
        logits_BV.copy_(fused_decode(model, cache.k, cache.v, *step, layout))

    recording = Again(work)
    while who := [i for i in range(3) if len(said[i]) < n[i]]:
        with cache.step({seqs[i]: 1 for i in who}) as view:
            if record:
                rows = [
                    (said[i][-1], row.start, cache.tables.tables[seqs[i]])
                    for i, row in zip(who, view.rows)
                ]
                load(buffers, rows, C, cache.spare_page)
                recording.replay()
                view.appended.update(range(model.config.L))
                found = logits_BV
            else:
                found = model(torch.tensor([said[i][-1] for i in who]), view)
        for i, x in zip(who, found):
            said[i].append(int(x.argmax()))
    return said


plain, replayed = answers(False), answers(True)
for beginning, before, now in zip(beginnings, plain, replayed):
    text = " ".join((beginning + tokenizer.decode(now)).split())
    print(f"{'equal' if now == before else 'NOT EQUAL'}: {text} …")

# %% [markdown]
# ## Exercise 4 · Turned on the way
#
# **Outcome:** a fused kernel that moves the formula's bytes · **Difficulty:** ●●○ ·
# **Time:** 25 min
#
# In every layer the new keys are turned by their positions (RoPE), and keys and values are written
# to their slots. Done apart, keys are read, written, read and written again. The spec, row by row:

# %%
def write_turned_spec(
    k_BKD: Tensor, v_BKD: Tensor, cos_BE: Tensor, sin_BE: Tensor, slots_B: Tensor,
    k_PCKD: Tensor, v_PCKD: Tensor,
) -> None:  # fmt: skip
    """Row b's angle e turns numbers e and e + E of its keys. Writes into the pages."""
    C, E = k_PCKD.shape[1], cos_BE.shape[1]
    for b, slot in enumerate(slots_B.tolist()):
        if slot < 0:  # nobody's row
            continue
        k_KD, page, place = k_BKD[b], slot // C, slot % C
        k_PCKD[page, place, :, :E] = k_KD[:, :E] * cos_BE[b] - k_KD[:, E:] * sin_BE[b]
        k_PCKD[page, place, :, E:] = k_KD[:, E:] * cos_BE[b] + k_KD[:, :E] * sin_BE[b]
        v_PCKD[page, place] = v_BKD[b]


# %% [markdown]
# Write it as one kernel, `write_turned`. Program (b, head) has one KV head of one row.
#
# - Its key begins at `k + b * x_b + head * x_k`, and its value lies in `v` in the same way. Cosines
#   begin at `cos + b * t_b`, sines at `sin + b * t_b`, E numbers each.
# - Place c of page p begins at `k_pages + p * p_p + c * p_c + head * p_k`, and in `v_pages` in the
#   same way. Whatever else lies in the pages stays as it is.
# - A row with slot −1 is nobody's. It writes nowhere and loads nothing but its slot.
# - Ask for no number twice.

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Two tiles of E lanes for a key, its halves; and two for a value. A comparison of the slot with 0
# is a mask for all of them, in loads and in stores; or an `if` around them.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Both new halves are made of both old ones. Name the old ones, and do not write over them.
#
# </details>

# %% tags=["exercise"]
@triton.jit
def write_turned(
    k, v, cos, sin, slots, k_pages, v_pages, x_b, x_k, t_b, p_p, p_c, p_k,
    C: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    """One program: one KV head of one row. Stores its key, turned, and its value."""
    b, head, e = tl.program_id(0), tl.program_id(1), tl.arange(0, E)
    slot = tl.load(slots + b)
    ### BEGIN SOLUTION
    real = (slot >= 0) & (e < E)
    x = b * x_b + head * x_k + e
    first = tl.load(k + x, mask=real, other=0.0)
    second = tl.load(k + x + E, mask=real, other=0.0)
    c = tl.load(cos + b * t_b + e, mask=real, other=0.0)
    s = tl.load(sin + b * t_b + e, mask=real, other=0.0)
    to = slot // C * p_p + slot % C * p_c + head * p_k + e
    tl.store(k_pages + to, first * c - second * s, mask=real)
    tl.store(k_pages + to + E, second * c + first * s, mask=real)
    tl.store(v_pages + to, tl.load(v + x, mask=real, other=0.0), mask=real)
    tl.store(v_pages + to + E, tl.load(v + x + E, mask=real, other=0.0), mask=real)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab20.write_turned", write_turned)

# %% [markdown]
# In the model's own sizes: `load` brings a step of three people into tensors of four rows. There
# the fourth row stands on the spare page; here its slot becomes −1, and it needs no page. What did
# your kernel touch, and what does the library's formula say that three rows must move?

# %% tags=["measure"]
from kvedu.analysis.known_models import known_model
from kvedu.kernels.rope import cos_sin

config = known_model("SmolLM2-135M").config
B, K, D, C, P = 4, config.K, config.D, 16, 8
shapes = {"ids": (B,), "positions": (B,), "slots": (B,), "lengths": (B,), "tables": (B, 3)}
step = {name: torch.zeros(shape, dtype=torch.int64) for name, shape in shapes.items()}
load(step, [(5, 40, [2, 7, 1]), (9, 3, [4]), (6, 16, [0, 3])], C, P - 1)
slots_B = torch.where(torch.arange(B) < 3, step["slots"], -1).to(DEVICE)
angles = cos_sin(config.rope, step["positions"], torch.float32)
cos_BE, sin_BE = (x[:, 0, : D // 2].contiguous().to(DEVICE) for x in angles)
torch.manual_seed(0)
k_BKD, v_BKD = torch.randn(2, B, K, D).to(DEVICE)
k_PCKD, v_PCKD = torch.zeros(2, P, C, K, D, device=DEVICE)
given = k_BKD, v_BKD, cos_BE, sin_BE, slots_B


def write():
    """Launch write_turned."""
    strides = *k_BKD.stride()[:2], cos_BE.stride(0), *k_PCKD.stride()[:3]
    write_turned[(B, K)](*given, k_PCKD, v_PCKD, *strides, C=C, E=D // 2)


if DEVICE == "cpu":
    with watching() as seen:
        write()
    least = rope_write.cost(3, 0, K, D, 4).bytes - 3 * 8  # keys and values alone, without slots
    print(f"touched {seen.read + seen.written:,} bytes; must move {least:,.0f}")
else:
    write()
    print("compiled for a GPU: loads are not seen")
spec = torch.zeros_like(k_PCKD), torch.zeros_like(v_PCKD)
write_turned_spec(*given, *spec)
equal = all(torch.allclose(a, b, atol=1e-6) for a, b in zip((k_PCKD, v_PCKD), spec))
print("equal to the spec:", equal)

# %% [markdown] tags=["solution"]
# The angles are asked for by every head and counted once: the chip's cache holds them. The
# library's kernel, `rope_write`, turns the queries in the same launch. So three operations of every
# layer become one, and a key crosses the bus once each way.
