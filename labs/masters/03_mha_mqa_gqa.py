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
# # Lab 3 · MHA, MQA, GQA
#
# You will read from a published configuration how its heads share keys, write attention that shares
# them without a copy, merge the heads of a trained layer, and find out which of three attentions is
# wrong. Chapter 3 has the story.
#
# The letters are the book's: **H** query heads, **K** KV heads, **G** = H / K queries that share a
# KV head, **D** head size, **S** cached tokens, **M** model width, **L** layers. Query head h reads
# KV head h // G.

# %%
import math
from dataclasses import replace

import torch

import kvedu
from kvedu import StaticCache, texts
from kvedu.analysis.cost import step_time
from kvedu.analysis.flops import decode_cost
from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.roofline import bound_by, ridge_point
from kvedu.compress.perplexity import perplexity
from kvedu.grading.allocation import LargestNew
from kvedu.units import MiB, binary
from kvedu.viz.explore import explore

torch.set_grad_enabled(False)  # nothing is trained here
seeded = torch.manual_seed(0)

# %% [markdown]
# ## Warm-up: one model, three ways to share
#
# The book's model has 9 query heads. With the same 9, it could keep 9 KV heads, 3 or 1. What would
# its cache hold at its full length?

# %%
model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu")
for kv_heads in (9, 3, 1):
    config = model.config.with_kv_heads(kv_heads)
    cache = StaticCache(config, max_length=config.max_positions, dtype=torch.bfloat16)
    sharing_of = f"{config.attention_kind}, K={config.K}, G={config.G}"
    print(f"{sharing_of}: {binary(cache.nbytes)} in bf16 for {config.max_positions:,} tokens")

# %% [markdown]
# ## Exercise 1 · Read a configuration
#
# **Outcome:** kind of attention and bytes per token of any published model · **Difficulty:** ●○○ ·
# **Time:** 10 min
#
# Model makers publish a `config.json`. Not all of them fill in the same keys:
#
# - `num_hidden_layers`, `num_attention_heads` and `hidden_size` are always there;
# - `num_key_value_heads` came with MQA and GQA. Older models do not have it, or have `null` there;
# - `head_dim` is given only where it is not `hidden_size / num_attention_heads`.
#
# Write `sharing(published)`: the kind (`"MHA"`, `"GQA"` or `"MQA"`) and the bytes that one token
# adds to the cache in 16 bits, all layers together.

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# First find K. What did a model do before sharing was invented?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `published.get("head_dim")` is `None` both where the key is missing and where it says `null`. The
# same goes for the other key.
#
# </details>

# %% tags=["exercise"]
def sharing(published):
    """(kind, bytes per token) of a published configuration."""
    ### BEGIN SOLUTION
    heads = published["num_attention_heads"]
    kv_heads = published.get("num_key_value_heads") or heads
    head_size = published.get("head_dim") or published["hidden_size"] // heads
    kind = "MHA" if kv_heads == heads else "MQA" if kv_heads == 1 else "GQA"
    return kind, 2 * published["num_hidden_layers"] * kv_heads * head_size * 2
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab03.sharing", sharing)

# %% [markdown]
# Four models that the library knows, each with the keys that it cannot do without:

# %% tags=["measure"]
for name in ("SmolLM2-135M", "Llama-2-7B", "Llama-3-8B", "Qwen3-4B"):
    known = known_model(name).config
    published = {
        "num_hidden_layers": known.L,
        "num_attention_heads": known.H,
        "hidden_size": known.M,
    }
    if known.K != known.H:
        published["num_key_value_heads"] = known.K
    if known.D != known.M // known.H:
        published["head_dim"] = known.D
    kind, size = sharing(published)
    given = ", ".join(key for key in ("num_key_value_heads", "head_dim") if key in published)
    print(f"{name:14}{kind}  {size:8,} bytes per token; also given: {given or 'nothing'}")

# %% [markdown] tags=["solution"]
# A missing number of KV heads means that nothing is shared. Taking it for 1 would make every old
# model an MQA model, and its cache H times too small.

# %% [markdown]
# ## Exercise 2 · Share without a copy
#
# **Outcome:** decode attention that reads each key once, whatever the kind · **Difficulty:** ●●○ ·
# **Time:** 20 min
#
# Many first versions of GQA call `repeat_interleave` on K and V, so that each query head has its
# own. That is right, and it writes a cache G times as large at every step. Write
# `decode_attention(q_HD, k_KSD, v_KSD)`: one new token's H queries over S cached tokens, all of
# them visible. It returns `o_HD`. No tensor as large as `k_KSD` may be made on the way; the check
# watches every operation.

# %%
def decode_with_copies(q_HD, k_KSD, v_KSD):
    """What you are to improve on: right, and wasteful."""
    G = len(q_HD) // len(k_KSD)
    k_HSD, v_HSD = k_KSD.repeat_interleave(G, dim=0), v_KSD.repeat_interleave(G, dim=0)
    scores_HS = (k_HSD @ q_HD[:, :, None])[..., 0] / math.sqrt(q_HD.shape[1])
    return (scores_HS.softmax(dim=-1)[:, None] @ v_HSD)[:, 0]


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Do not multiply the keys. Make the queries of a group the rows of one matrix: `[K, G, D]`.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `k_KSD.mT` swaps the last two axes without moving anything. What is `[K, G, D] @ [K, D, S]`?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Shapes that broadcast, such as `[K, G, 1, D] @ [K, 1, D, S]`, look as if they did not copy.
# `matmul` copies them all the same: the check will name `clone`.
#
# </details>

# %% tags=["exercise"]
def decode_attention(q_HD, k_KSD, v_KSD):
    """Attention of one new token over all cached ones; no key and no value is copied."""
    ### BEGIN SOLUTION
    H, D = q_HD.shape
    K = len(k_KSD)
    q_KGD = q_HD.view(K, H // K, D)
    weights_KGS = (q_KGD @ k_KSD.mT / math.sqrt(D)).softmax(dim=-1)
    return (weights_KGS @ v_KSD).reshape(H, D)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab03.decode_attention", decode_attention)

# %% tags=["measure"]
for H, K in ((9, 3), (8, 2), (9, 9), (8, 1), (28, 4)):
    given = torch.randn(H, 64), torch.randn(K, 4096, 64), torch.randn(K, 4096, 64)
    with LargestNew(*given) as watch:
        decode_attention(*given)
    keys, made = given[1].nbytes, watch.largest
    sizes = f"keys {keys / MiB:.0f} MiB, largest tensor made {made / keys:.3f} of that"
    print(f"H={H:2}, K={K}: {sizes}")

# %% [markdown] tags=["solution"]
# The largest tensor made is the scores, G / D of the keys: a whole group's rows for each token,
# against D numbers of its key. Here is what the wasteful version makes:

# %% tags=["solution"]
given = torch.randn(28, 64), torch.randn(4, 4096, 64), torch.randn(4, 4096, 64)
with LargestNew(*given) as wasteful:
    decode_with_copies(*given)
factor = wasteful.largest / given[1].nbytes
print(f"decode_with_copies: {wasteful.operation} made a tensor {factor:.0f} times the keys' size")

# %% [markdown]
# ## Exercise 3 · Merge the heads of a layer
#
# **Outcome:** the mean of KV heads, inside a real projection matrix · **Difficulty:** ●●○ ·
# **Time:** 15 min
#
# In this library one matrix `qkv` of shape `[(H + 2 K) · D, M]` makes queries, keys and values:
# first D rows for each query head, then D for each KV head's keys, then D for each KV head's
# values. Write `merge_kv_heads(qkv_OM, H, K, D)`: a new matrix of `(H + 2) · D` rows, with the
# queries as they were, and one head of keys and one of values, each the mean of the K old ones.
#
# Before you run the cell after the check, **predict**: how many times higher is the perplexity of a
# page of text when only *one* of the 30 layers is merged? When all are?

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `qkv_OM.split([H * D, K * D, K * D])` takes it apart.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The rows of a head stay in order: row d of the new head is the mean over heads of *their* row d.
# `view(K, D, -1)` makes heads an axis.
#
# </details>

# %% tags=["exercise"]
def merge_kv_heads(qkv_OM, H, K, D):
    """The projection with K KV heads merged into one."""
    ### BEGIN SOLUTION
    q_OM, k_OM, v_OM = qkv_OM.split([H * D, K * D, K * D])
    merged = [x_OM.view(K, D, -1).mean(dim=0) for x_OM in (k_OM, v_OM)]
    return torch.cat([q_OM, *merged])
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab03.merge_kv_heads", merge_kv_heads)

# %% [markdown]
# Now the measurement. To merge a single layer and leave the others, its merged head is written back
# three times, so that the layer keeps its shape.

# %% tags=["measure"]
page = model.tokenizer.encode(texts.read("prose"))[:384]


def perplexity_with_merged(layers):
    """Perplexity of the page while these layers are merged; the model is left as it was."""
    H, K, D = model.config.H, model.config.K, model.config.D
    kept = {layer: model.layers[layer].attn.qkv.weight.clone() for layer in layers}
    try:
        for layer, old_OM in kept.items():
            q_OM, k_DM, v_DM = merge_kv_heads(old_OM, H, K, D).split([H * D, D, D])
            model.layers[layer].attn.qkv.weight.copy_(torch.cat([q_OM, *[k_DM] * K, *[v_DM] * K]))
        return perplexity(model, page, window=384, stride=256)
    finally:
        for layer, old_OM in kept.items():
            model.layers[layer].attn.qkv.weight.copy_(old_OM)


trained = perplexity_with_merged([])
choices = {f"layer {layer}": [layer] for layer in (0, 1, 15, 29)} | {"all layers": range(30)}
for name, layers in choices.items():
    times = perplexity_with_merged(layers) / trained
    print(f"{name:>10} merged: perplexity times {times:.{1 if times < 10 else 0}f}")

# %% [markdown] tags=["solution"]
# A layer in the middle or at the end is hardly missed, since every layer only adds its share to
# what the others have made. The damage is in the sum of many layers, and in the first ones, on
# which all others build. It is a reason to give some layers fewer KV heads than others, and a
# reason why training repairs so much: each layer needs to mend only its own part.

# %% [markdown]
# ## Exercise 4 · Two of three are wrong
#
# **Outcome:** tests that see a silent bug · **Difficulty:** ●●● · **Time:** 15 min
#
# Three attentions for one new token. All three agree on the models that their authors tested. Two
# of them have a bug.

# %%
def _attend(q_HD, k_HSD, v_HSD):
    scores_HS = torch.einsum("hd,hsd->hs", q_HD, k_HSD) / math.sqrt(q_HD.shape[1])
    return torch.einsum("hs,hsd->hd", scores_HS.softmax(dim=-1), v_HSD)


def attention_a(q_HD, k_KSD, v_KSD):
    """Attention of H query heads over K KV heads."""
    n_rep = q_HD.shape[0] // k_KSD.shape[0]
    heads = torch.arange(q_HD.shape[0])
    index = heads // k_KSD.shape[0] if n_rep > 1 else heads
    return _attend(q_HD, k_KSD[index], v_KSD[index])


def attention_b(q_HD, k_KSD, v_KSD):
    """Attention of H query heads over K KV heads."""
    n_rep = q_HD.shape[0] // k_KSD.shape[0]
    k, v = (x[:, None].expand(-1, n_rep, -1, -1).flatten(0, 1) for x in (k_KSD, v_KSD))
    return _attend(q_HD, k, v)


def attention_c(q_HD, k_KSD, v_KSD):
    """Attention of H query heads over K KV heads."""
    n_rep = q_HD.shape[0] // k_KSD.shape[0]
    return _attend(q_HD, k_KSD.repeat(n_rep, 1, 1), v_KSD.repeat(n_rep, 1, 1))


# %% [markdown]
# Give a verdict on each: `None` for the right one, and for a wrong one a pair `(H, K)` on which it
# is wrong *and raises no error*. And give `hides`: for each wrong one a pair with 1 < K < H on
# which it is right all the same, or `None` if there is no such pair.

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write V so that the answer names its source: let all values of KV head j be the number j. Then the
# output of a query head is the head it has read.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Which KV head does query head h read in each version: h // G, h // K, h % K? For which H and K are
# two of these equal for every h? For which is h // K never more than K − 1?
#
# </details>

# %% tags=["exercise"]
def shows():
    """Version -> (H, K) on which it is silently wrong, or None if it is right."""
    ### BEGIN SOLUTION
    return {"a": (32, 8), "b": None, "c": (9, 3)}
    ### END SOLUTION


def hides():
    """Wrong version -> (H, K) with 1 < K < H on which it is right, or None if there is none."""
    ### BEGIN SOLUTION
    return {"a": (9, 3), "c": None}
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab03.shows", shows)
kvedu.check("lab03.hides", hides)

# %% [markdown] tags=["solution"]
# *a* divides by the number of KV heads instead of by the group's size. It is right whenever both
# are the same, as in SmolLM2 with its 9 = 3 × 3 heads, in models with H = 4 and K = 2, or 16 and 4.
# *c* tiles: 0, 1, 2, 0, 1, 2. Nothing between MHA and MQA hides that, so one GQA model in the tests
# is enough; for *a* it has to be one with K ≠ G.

# %% [markdown]
# ## Explore · The roofline of a decode step
#
# Llama-3-8B in bf16 with more or fewer KV heads, on a machine's datasheet. A part that does fewer
# FLOPs for a byte than the machine can do waits for memory. (Whether it all fits there is another
# question, that of Lab 2.) `decode_roofline` is a plain function; where this notebook runs, sliders
# stand above its answer. What makes the MLP wait for arithmetic? Does any number of sequences do
# that for attention? And KV heads?

# %% tags=["nbval-ignore-output"]
def decode_roofline(sequences, context, KV_heads, machine):
    """Bound of one decode step, and what each part waits for."""
    llama, hw = replace(known_model("Llama-3-8B").config, n_kv_heads=KV_heads), hardware(machine)
    seconds = step_time(llama, hw, sequences, context=context)
    lines = [f"at least {1e3 * seconds:.2f} ms a step, at most {sequences / seconds:,.0f} tokens/s"]
    ridge = ridge_point(hw, "bf16")
    lines.append(f"{machine} can do {ridge:,.0f} FLOPs for each byte that it reads or writes")
    for part, cost in decode_cost(llama, context, sequences).items():
        bound = bound_by(cost, hw, "bf16")
        lines.append(f"{part:12}{cost.intensity:8,.1f} FLOPs per byte: waits for {bound}")
    return "\n".join(lines)


explore(
    decode_roofline,
    start={"sequences": 16, "context": 4096, "KV_heads": 8},
    sequences=(1, 4, 16, 64, 256, 1024),
    context=(512, 4096, 32768),
    KV_heads=(1, 2, 4, 8, 16, 32),
    machine=("H100-SXM", "A100-80GB-SXM", "L4", "M3-Max"),
)

# %% [markdown]
# ## Challenge · Fewest bytes, nearly the same text (optional)
#
# **Outcome:** a choice of layers to merge, held against the model · **Difficulty:** ●●○ ·
# **Time:** 15 min
#
# A layer whose KV heads are merged keeps a third of its cache. Which layers do you merge, so that
# the page's perplexity rises by at most a tenth? Change the list and run the cell again; the board
# keeps your own runs, the fewest bytes per token first. (Exercise 3 must be done.)

# %% tags=["measure"]
config = model.config


def tried(chosen):
    """The board with these layers merged, or None where too much is lost."""
    sizes = [1 if layer in chosen else config.K for layer in range(config.L)]
    kept_bytes = 4 * config.D * sum(sizes)
    within = perplexity_with_merged(chosen) <= 1.1 * trained
    print(f"{len(chosen)} layers merged: {kept_bytes:,} bytes per token in bf16")
    print(f"perplexity within a tenth: {within}")
    if within:
        name = ", ".join(map(str, chosen))
        return kvedu.leaderboard("lab03.fewest_bytes", label=name, bytes_per_token=kept_bytes)


chosen = [28, 29]
tried(chosen)

# %% [markdown] tags=["solution"]
# Twice as many layers can go, and not the last ones only. They were found one by one: in the order
# of what each costs alone, a layer stayed merged if the page still allowed it. What looks harmless
# alone need not be harmless beside the others, so the sum has to be measured after each step.

# %% tags=["solution"]
tried([5, 9, 26, 29])
