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
# You will read from a published configuration how its heads share keys, write attention that shares them without a copy,
# merge the heads of a trained layer, and find out which of three attentions is wrong. Chapter 3 has the story; this lab
# needs about 60 minutes.
#
# The letters are the book's: **H** query heads, **K** KV heads, **G** = H / K queries that share a KV head, **D** head
# size, **S** cached tokens, **M** model width, **L** layers. Query head h reads KV head h // G.

# %%
import math

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import kvedu
from kvedu import StaticCache, texts
from kvedu.analysis.known_models import known_model
from kvedu.compress.perplexity import perplexity
from kvedu.compress.pool_heads import pool_kv_heads
from kvedu.kernels.attention import attention_reference
from kvedu.units import MiB, binary

torch.set_grad_enabled(False)  # nothing is trained here
seeded = torch.manual_seed(0)

# %% [markdown]
# ## Warm-up: one model, three ways to share
#
# The book's model has 9 query heads. With the same 9, it could keep 9 KV heads, 3 or 1. What would its cache hold at its
# full length?

# %%
model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu")
for kv_heads in (9, 3, 1):
    config = model.config.with_kv_heads(kv_heads)
    cache = StaticCache(config, max_length=config.max_positions, dtype=torch.bfloat16)
    print(f"{config.attention_kind}, K={config.K}, G={config.G}: {binary(cache.nbytes)} in bf16 for {config.max_positions:,} tokens")

# %% [markdown]
# ## Exercise 1 · Read a configuration
#
# **Outcome:** kind of attention and bytes per token of any published model · **Difficulty:** ●○○ · **Time:** 10 min
#
# Model makers publish a `config.json`. Not all of them fill in the same keys:
#
# - `num_hidden_layers`, `num_attention_heads` and `hidden_size` are always there;
# - `num_key_value_heads` came with MQA and GQA. Older models do not have it, or have `null` there;
# - `head_dim` is given only where it is not `hidden_size / num_attention_heads`.
#
# Write `sharing(published)`: the kind (`"MHA"`, `"GQA"` or `"MQA"`) and the bytes that one token adds to the cache in 16 bits,
# all layers together.

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# First find K. What did a model do before sharing was invented?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `published.get("head_dim")` is `None` both where the key is missing and where it says `null`. The same goes for the other key.
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
PUBLISHED = {
    "SmolLM2-135M": {"num_hidden_layers": 30, "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3},
    "Llama-2-7B": {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32},
    "the same with a null": {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": None},
    "Llama-3-8B": {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8},
    "Qwen3-4B": {
        "num_hidden_layers": 36, "hidden_size": 2560, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    },
    "Gemma-2B": {
        "num_hidden_layers": 18, "hidden_size": 2048, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256,
    },
}  # fmt: skip


def _check_sharing(answer):
    for name, published in PUBLISHED.items():
        shape = known_model("Llama-2-7B" if name.startswith("the same") else name).shape
        got = answer(dict(published))
        assert isinstance(got, tuple) and len(got) == 2, f"{name}: a pair (kind, bytes) was wanted, {got!r} came"
        kind, size = got
        assert kind == shape.kind, f"{name}: {shape.n_heads} query heads and {shape.n_kv_heads} KV heads are {shape.kind}, not {kind!r}"
        want = 4 * shape.n_layers * shape.n_kv_heads * shape.head_dim
        assert isinstance(size, int), f"{name}: bytes are whole: an int was wanted, {size!r} came (use //)"
        assert size * shape.n_kv_heads != want * shape.n_heads or shape.kind == "MHA", (
            f"{name}: {size:,} is {shape.n_heads // shape.n_kv_heads} times too much; it counts query heads, but KV heads are kept"
        )
        assert size * 2 != want, f"{name}: {size:,} is half of it; there are keys *and* values, of 2 bytes each"
        assert size == want, f"{name}: {want:,} bytes wanted, {size:,} came; which head size did you take?"
        print(f"{name:22}{kind}  {size:8,} bytes per token")


_check_sharing(sharing)

# %% [markdown] tags=["solution"]
# A missing number of KV heads means that nothing is shared. Taking it for 1 would make every old model an MQA model, and its
# cache 32 times too small.

# %% [markdown]
# ## Exercise 2 · Share without a copy
#
# **Outcome:** decode attention that reads each key once, whatever the kind · **Difficulty:** ●●○ · **Time:** 20 min
#
# Many first versions of GQA call `repeat_interleave` on K and V, so that each query head has its own. That is right, and it writes
# a cache G times as large at every step. Write `decode_attention(q_HD, k_KSD, v_KSD)`: one new token's H queries over S cached tokens,
# all of them visible. It returns `o_HD`. No tensor as large as `k_KSD` may be made on the way; the check watches every operation.

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
# Do not make the keys more. Make the queries of a group the rows of one matrix: `[K, G, D]`.
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
# Shapes that broadcast, such as `[K, G, 1, D] @ [K, 1, D, S]`, look as if they did not copy. `matmul` copies them all the same: the
# check will name `clone`.
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
class _LargestNew(TorchDispatchMode):
    """Watches every operation, and remembers the largest tensor that has memory of its own."""

    def __init__(self, *given):
        super().__init__()
        self.known = {x.untyped_storage().data_ptr() for x in given}
        self.largest, self.operation = 0, "nothing"

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in self.known:
                if x.untyped_storage().nbytes() > self.largest:
                    self.largest, self.operation = x.untyped_storage().nbytes(), func.overloadpacket.__name__
        return out


def _check_decode(answer):
    S, D = 4096, 64
    for H, K in ((9, 3), (8, 2), (9, 9), (8, 1), (28, 4)):
        q_HD, k_KSD, v_KSD = torch.randn(H, D), torch.randn(K, S, D), torch.randn(K, S, D)
        with _LargestNew(q_HD, k_KSD, v_KSD) as watch:
            got = answer(q_HD, k_KSD, v_KSD)
        assert got.shape == (H, D), f"H={H}, K={K}: the output has shape {tuple(got.shape)}, wanted is [H, D] = ({H}, {D})"
        marked_KSD = torch.arange(K).float()[:, None, None].expand(K, S, D).contiguous()
        read = answer(q_HD, k_KSD, marked_KSD)[:, 0].round().int().tolist()
        right = [h // (H // K) for h in range(H)]
        assert read == right, f"H={H}, K={K}: query heads 0, 1, 2 ... read KV heads {read}, they should read {right}"
        want = attention_reference(q_HD[None], k_KSD.transpose(0, 1), v_KSD.transpose(0, 1), torch.ones(1, S, dtype=torch.bool))[0]
        gap = (got - want).abs().max().item()
        assert gap < 1e-4, f"H={H}, K={K}: differs from the per-head loop by {gap:.1e}; did you scale by 1/sqrt(D)?"
        assert watch.largest < k_KSD.nbytes, (
            f"H={H}, K={K}: {watch.operation} made a tensor of {watch.largest / MiB:.1f} MiB, and the keys have {k_KSD.nbytes / MiB:.1f} MiB: "
            "that is a copy"
        )
        print(f"H={H:2}, K={K}: right; keys {k_KSD.nbytes / MiB:.0f} MiB, largest tensor made {watch.largest / k_KSD.nbytes:.3f} of that")


_check_decode(decode_attention)

# %% [markdown] tags=["solution"]
# The largest tensor made is the scores, G / D of the keys: a whole group's rows for each token, against D numbers of its key.
# Here is what the wasteful version makes:

# %% tags=["solution"]
given = torch.randn(28, 64), torch.randn(4, 4096, 64), torch.randn(4, 4096, 64)
with _LargestNew(*given) as wasteful:
    decode_with_copies(*given)
print(f"decode_with_copies: {wasteful.operation} made a tensor {wasteful.largest / given[1].nbytes:.0f} times as large as the keys")

# %% [markdown]
# ## Exercise 3 · Merge the heads of a layer
#
# **Outcome:** the mean of KV heads, inside a real projection matrix · **Difficulty:** ●●○ · **Time:** 15 min
#
# In this library one matrix `qkv` of shape `[(H + 2 K) · D, M]` makes queries, keys and values: first D rows for each query head, then D
# for each KV head's keys, then D for each KV head's values. Write `merge_kv_heads(qkv_OM, H, K, D)`: a new matrix of
# `(H + 2) · D` rows, with the queries as they were, and one head of keys and one of values, each the mean of the K old ones.
#
# Before you run the cell after the check, **predict**: how many times higher is the perplexity of a page of text when only *one* of the
# 30 layers is merged? When all are?

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `qkv_OM.split([H * D, K * D, K * D])` takes it apart.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The rows of a head stay in order: row d of the new head is the mean over heads of *their* row d. `view(K, D, -1)` makes heads an axis.
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
def _check_merge(answer):
    H, K, D = model.config.H, model.config.K, model.config.D
    old_OM = model.layers[7].attn.qkv.weight.detach()
    before = old_OM.clone()
    got = answer(old_OM, H, K, D)
    assert torch.equal(old_OM, before), "the matrix that was given has changed; make a new one"
    assert got.shape == ((H + 2) * D, old_OM.shape[1]), f"shape {tuple(got.shape)} came, [(H + 2) · D, M] = {((H + 2) * D, old_OM.shape[1])} was wanted"
    want = pool_kv_heads(model, 1).layers[7].attn.qkv.weight.detach()
    assert torch.equal(got[: H * D], want[: H * D]), "the first H · D rows are the queries; they stay as they were"
    keys, values = got[H * D : (H + 1) * D], got[(H + 1) * D :]
    mixed = old_OM[H * D : (H + K) * D].view(D, K, -1).mean(dim=1)
    assert not torch.allclose(keys, mixed), "you took the mean of neighboring rows; heads are blocks of D rows, so the axis of heads comes first"
    summed = old_OM[H * D : (H + K) * D].view(K, D, -1).sum(dim=0)
    assert not torch.allclose(keys, summed), "the keys are the sum of the heads; the mean was wanted"
    assert not torch.allclose(keys, want[(H + 1) * D :]), "the keys are where the values belong: queries, keys, values is the order"
    assert torch.allclose(keys, want[H * D : (H + 1) * D], atol=1e-6), "the keys are not the mean of the three heads' keys"
    assert torch.allclose(values, want[(H + 1) * D :], atol=1e-6), "the values are not the mean of the three heads' values"
    print(f"{len(old_OM)} rows became {len(got)}: queries kept, {K} heads of keys and of values merged.")


_check_merge(merge_kv_heads)

# %% [markdown]
# Now the measurement. To merge a single layer and leave the others, its merged head is written back three times, so that the layer
# keeps its shape.

# %%
page = model.tokenizer.encode(texts.read("prose"))[:384]


def perplexity_with_merged(layers):
    """Perplexity of the page while these layers have their KV heads merged; the model is left as it was."""
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
for name, layers in {"layer 0": [0], "layer 1": [1], "layer 15": [15], "layer 29": [29], "all layers": range(30)}.items():
    times = perplexity_with_merged(layers) / trained
    print(f"{name:>10} merged: perplexity times {times:.{1 if times < 10 else 0}f}")

# %% [markdown] tags=["solution"]
# A layer in the middle or at the end is hardly missed, since every layer only adds its share to what the others have made. The damage is in the
# sum of many layers, and in the first ones, on which all others build. It is a reason to give some layers fewer KV heads than others, and
# a reason why training repairs so much: each layer needs to mend only its own part.

# %% [markdown]
# ## Exercise 4 · Two of three are wrong
#
# **Outcome:** tests that see a silent bug · **Difficulty:** ●●● · **Time:** 15 min
#
# Three attentions for one new token. All three agree on the models that their authors tested. Two of them have a bug.

# %%
def _attend(q_HD, k_HSD, v_HSD):
    weights_HS = torch.einsum("hd,hsd->hs", q_HD, k_HSD).div(math.sqrt(q_HD.shape[1])).softmax(dim=-1)
    return torch.einsum("hs,hsd->hd", weights_HS, v_HSD)


def attention_a(q_HD, k_KSD, v_KSD):
    """Attention of H query heads over K KV heads."""
    n_rep = q_HD.shape[0] // k_KSD.shape[0]
    index = torch.arange(q_HD.shape[0]) // k_KSD.shape[0] if n_rep > 1 else torch.arange(q_HD.shape[0])
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
# Give a verdict on each: `None` for the right one, and for a wrong one a pair `(H, K)` on which it is wrong *and raises no error*. And
# give `hides`: for each wrong one a pair with 1 < K < H on which it is right all the same, or `None` if there is no such pair.

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write V so that the answer names its source: let all values of KV head j be the number j. Then the output of a query head is the head
# it has read.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Which KV head does query head h read in each version: h // G, h // K, h % K? For which H and K are two of these equal for every h?
# For which is h // K never more than K - 1?
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
def _heads_read(attention, H, K):
    v_KSD = torch.arange(K).float()[:, None, None].expand(K, 5, 8).contiguous()
    return attention(torch.randn(H, 8), torch.randn(K, 5, 8), v_KSD)[:, 0].round().int().tolist()


def _check_pair(name, pair):
    assert isinstance(pair, tuple) and len(pair) == 2, f"{name}: a pair (H, K) was wanted, {pair!r} came"
    assert pair[0] % pair[1] == 0, f"{name}: {pair[0]} query heads cannot share {pair[1]} KV heads evenly"
    return pair


def _check_verdicts(shown, hidden):
    versions = {"a": attention_a, "b": attention_b, "c": attention_c}
    assert set(shown) == set(versions), f"shows() has the keys a, b and c, not {sorted(shown)}"
    accused = {name for name, pair in shown.items() if pair is not None}
    for name in sorted(accused):
        H, K = _check_pair(name, shown[name])
        try:
            read = _heads_read(versions[name], H, K)
        except IndexError:
            raise AssertionError(f"{name} with {H} and {K} heads raises an IndexError; find a pair on which it is wrong silently") from None
        right = [h // (H // K) for h in range(H)]
        assert read != right, f"{name} is right with {H} query heads and {K} KV heads; this pair shows nothing"
        print(f"{name}: with {H} and {K} heads, {sum(r == w for r, w in zip(read, right))} of {H} query heads read the right one")
    missed = [name for name in sorted(set(versions) - accused) if any(
        _heads_read(versions[name], H, K) != [h // (H // K) for h in range(H)] for H, K in ((6, 3), (12, 4)))]  # fmt: skip
    assert not missed, f"{', '.join(missed)} passed your judgment and is wrong; try H = 12 with K = 4"
    assert set(hidden) == accused, f"hides() has one key for each wrong version, {sorted(accused)}, not {sorted(hidden)}"
    for name, pair in sorted(hidden.items()):
        if pair is None:
            found = [(H, K) for K in range(2, 7) for H in range(2 * K, 37, K) if _silently_right(versions[name], H, K)]
            assert not found, f"{name} is right on some pair with 1 < K < H; look again"
            print(f"{name}: nothing hides it")
        else:
            H, K = _check_pair(name, pair)
            assert 1 < K < H, f"{name}: {pair} is MHA or MQA; wanted is a pair with 1 < K < H"
            assert _silently_right(versions[name], H, K), f"{name} is wrong with {H} query heads and {K} KV heads; that does not hide it"
            print(f"{name}: right by luck with {H} and {K} heads")


def _silently_right(attention, H, K):
    try:
        return _heads_read(attention, H, K) == [h // (H // K) for h in range(H)]
    except IndexError:
        return False


_check_verdicts(shows(), hides())

# %% [markdown] tags=["solution"]
# *a* divides by the number of KV heads instead of by the group's size. It is right whenever both are the same, as in SmolLM2 with
# its 9 = 3 × 3 heads, in models with H = 4 and K = 2, or 16 and 4. *c* tiles: 0, 1, 2, 0, 1, 2. Nothing between MHA and MQA hides that, so
# one GQA model in the tests is enough; for *a* it has to be one with K ≠ G.
