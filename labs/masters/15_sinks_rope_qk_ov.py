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
# # Lab 15 · Sinks, RoPE, QK and OV circuits
#
# You will write the cache that reads without end in fixed memory, and let a real model read with
# it. You will turn cached keys to other positions. Then you go looking for the head that lets the
# model repeat what was said, see what it brings, and silence it by spoiling a few cached rows.
# Chapter 15 has the story.
#
# The letters are the book's: **S** cached tokens, **H** query heads, **K** KV heads, **G** = H / K,
# **D** head size, **M** model width, **L** layers.

# %%
import torch

import kvedu
from kvedu import ConcatCache, texts
from kvedu.caches.dense import DenseView
from kvedu.kernels.attention import attention_reference
from kvedu.kernels.rmsnorm import rmsnorm_reference
from kvedu.kernels.rope import cos_sin, inverse_frequencies, rotate
from kvedu.model.attention_maps import attention_maps

_ = torch.set_grad_enabled(False)
model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu").pack()
config, tokenizer = model.config, model.tokenizer
print(f"L={config.L} H={config.H} K={config.K} G={config.G} D={config.D} M={config.M}")

# %% [markdown]
# ## Exercise 1 · Places in a ring
#
# **Outcome:** slots, tokens and positions told apart · **Difficulty:** ●●○ · **Time:** 10 min
#
# A ring holds the first `sinks` tokens of a text forever, in slots 0 … `sinks - 1`, and the last
# `window` tokens in the slots behind them. A new token is written over the oldest of the window:
# token n ≥ sinks goes to slot `sinks + (n - sinks) % window`. Keys are rotated by their place
# *inside the cache*: what is held is numbered 0, 1, 2 … in the order of the text, without a gap.
#
# Write `places(seen, sinks, window)`: after `seen` tokens, the place of the token in each slot that
# is used, as a list in the order of the slots.

# %% [markdown]
# <details><summary>Hint</summary>
#
# With 2 sinks, a window of 4 and 7 tokens seen, the slots hold tokens 0, 1, 6, 3, 4, 5. Sorted by
# the text: 0, 1, 3, 4, 5, 6. So the places are 0, 1, 5, 2, 3, 4.
#
# </details>

# %% tags=["exercise"]
def places(seen, sinks, window):
    """Place inside the cache of the token in each used slot."""
    ### BEGIN SOLUTION
    held = min(seen, sinks + window)
    if seen == held:
        return list(range(held))
    oldest = (seen - sinks) % window  # of the window's slots, the one that is written next
    return [*range(sinks), *(sinks + (slot - oldest) % window for slot in range(window))]
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab15.places", places)

# %% tags=["measure"]
for seen in (3, 6, 7, 8, 11):
    print(f"{seen:2} tokens seen, 2 sinks, window 4: places", *places(seen, 2, 4))

# %% [markdown]
# ## Exercise 2 · A ring with sinks
#
# **Outcome:** a cache of fixed size with positions of its own · **Difficulty:** ●●● ·
# **Time:** 20 min
#
# Now the cache, for one sequence and one layer. `turned(x_NHD, at)` rotates rows by positions;
# `attention(q_HD, k_SKD, v_SKD)` is one query over all keys. Write the two methods of `SinkRing`:
#
# - `append(k_KD, v_KD)` takes in one token. The key comes as it was projected, not rotated.
# - `attend(q_HD)` is called after it, with the same token's query, not rotated either, and returns
#   what it attends to, `[H, D]`.
#
# Memory must not grow with the text.

# %%
def turned(x_NHD, at):
    """Rows rotated by these positions."""
    return rotate(x_NHD, *cos_sin(config.rope, torch.tensor(at), torch.float32))


def attention(q_HD, k_SKD, v_SKD):
    """One query over all of these keys: [H, D]."""
    everything = torch.ones(1, len(k_SKD), dtype=torch.bool)
    return attention_reference(q_HD[None], k_SKD, v_SKD, everything)[0]


# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A softmax does not care in which order the keys lie. So you need not sort the slots, if each key
# is rotated by its own place.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The query belongs to the newest token, so its place is the last one: `held - 1`.
#
# </details>

# %% tags=["exercise"]
class SinkRing:
    """First tokens and last tokens of one sequence, in one layer."""

    def __init__(self, sinks, window, K, D):
        self.sinks, self.window, self.seen = sinks, window, 0
        self.k_RKD, self.v_RKD = torch.zeros(2, sinks + window, K, D)

    def append(self, k_KD, v_KD):
        ### BEGIN SOLUTION
        slot = self.seen
        if slot >= self.sinks:
            slot = self.sinks + (slot - self.sinks) % self.window
        self.k_RKD[slot], self.v_RKD[slot] = k_KD, v_KD
        self.seen += 1
        ### END SOLUTION

    def attend(self, q_HD):
        ### BEGIN SOLUTION
        at = places(self.seen, self.sinks, self.window)
        held = len(at)
        q_1HD = turned(q_HD[None], [held - 1])
        return attention(q_1HD[0], turned(self.k_RKD[:held], at), self.v_RKD[:held])
        ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab15.sink_ring", SinkRing)

# %% [markdown]
# Your ring under the real model: it reads 64 tokens one by one, with 24 places in each layer. The
# rings hold the same number of tokens; only what they hold differs.

# %% tags=["measure"]
class RingView(DenseView):
    """Hands each layer's token to its ring."""

    def rotate(self, q_NHD, k_NKD):
        return q_NHD, k_NKD  # the ring rotates

    def append(self, layer, k_NKD, v_NKD):
        self.cache.rings[layer].append(k_NKD[0], v_NKD[0])
        self.appended.add(layer)

    def attend(self, layer, q_NHD):
        return self.cache.rings[layer].attend(q_NHD[0])[None]


class RingCache(ConcatCache):
    """One ring for each layer; the library's cache counts the tokens."""

    view = RingView

    def __init__(self, sinks, window):
        super().__init__(config)
        self.rings = [SinkRing(sinks, window, config.K, config.D) for _ in range(config.L)]


def read(cache, ids):
    """Perplexity of the tokens after the first 24, read one by one."""
    seq, losses = cache.add(), []
    for token, after in zip(ids, ids[1:]):
        with cache.step({seq: 1}) as view:
            losses.append(-model(torch.tensor([token]), view)[0].log_softmax(-1)[after])
    return torch.stack(losses[24:]).mean().exp().item()


page = tokenizer.encode(texts.read("prose"))[:97]
caches = {
    "24 last": RingCache(0, 24),
    "1 first, 23 last": RingCache(1, 23),
    "all": ConcatCache(config),
}
for name, cache in caches.items():
    print(f"{name:17} perplexity {read(cache, page[:65]):6.1f}")

# %% [markdown]
# ## Exercise 3 · Turn cached keys
#
# **Outcome:** keys moved to other positions without their tokens · **Difficulty:** ●●○ ·
# **Time:** 10 min
#
# Most caches store keys *rotated*. When such a cache drops tokens and numbers the rest anew, its
# keys stand at the wrong angle. They can be mended without the token and without the weights.
#
# Write `moved(k_SKD, old_S, new_S, inv_freq_J)`: keys that were rotated at positions `old_S` as
# they would be at `new_S` (two integer tensors, one entry for each key). Pair j of a head is
# dimensions j and j + D/2; at position p it is turned by the angle $\theta = p f_j$, with $f_j$ =
# `inv_freq_J[j]`: $a' = a \cos\theta - b \sin\theta$, $b' = b \cos\theta + a \sin\theta$.

# %% [markdown]
# <details><summary>Hint</summary>
#
# What does turning by 5 and then by −2 give? The keys are turned by `old_S` already.
#
# </details>

# %% tags=["exercise"]
def moved(k_SKD, old_S, new_S, inv_freq_J):
    """Keys rotated at old_S, turned to new_S."""
    ### BEGIN SOLUTION
    by_S1J = (new_S - old_S).to(torch.float32)[:, None, None] * inv_freq_J
    cos, sin = by_S1J.cos(), by_S1J.sin()
    a_SKJ, b_SKJ = k_SKD.chunk(2, dim=-1)
    return torch.cat((a_SKJ * cos - b_SKJ * sin, b_SKJ * cos + a_SKJ * sin), dim=-1)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab15.moved", moved)

# %% [markdown]
# In the model: 80 tokens are read, tokens 4 to 55 are dropped, the others are numbered anew. How
# well are the next 16 tokens predicted, with the keys as they are cached and with yours?

# %% tags=["measure"]
kept = [*range(4), *range(56, 80)]
inv_freq_J, _ = inverse_frequencies(config.rope)


def next_tokens(turn):
    """Perplexity of tokens 81 to 96 after the drop."""
    cache = ConcatCache(config)
    seq = cache.add()
    with cache.step({seq: 80}) as view:
        model.hidden(torch.tensor(page[:80]), view)
    cache.keep(seq, kept)
    cache._positions[seq] = list(range(len(kept)))  # numbered anew
    for layer in range(config.L):
        k_SKD, v_SKD = cache._kv[seq, layer]
        cache._kv[seq, layer] = turn(k_SKD), v_SKD
    with cache.step({seq: 16}) as view:
        logits = model(torch.tensor(page[80:96]), view)
    return torch.nn.functional.cross_entropy(logits, torch.tensor(page[81:97])).exp().item()


old_S, new_S = torch.tensor(kept), torch.arange(len(kept))
for name, turn in (
    ("keys as they are cached", lambda k: k),
    ("keys turned", lambda k: moved(k, old_S, new_S, inv_freq_J)),
):
    print(f"{name:24} perplexity {next_tokens(turn):6.1f}")

# %% [markdown]
# ## Exercise 4 · Find the head that repeats
#
# **Outcome:** an induction head, found by where it looks · **Difficulty:** ●●○ · **Time:** 10 min
#
# A text of P random tokens is read twice in a row. Query t of the second half stands on a token
# that came before, at t − P. A head that wants to go on as last time looks at the token that came
# *after* that one.
#
# Write `induction_score(weights_HTS, P)`: for each head, the mean weight on that token, over the
# queries of the second half. `weights_HTS` are the attention maps of one layer, `[H, 2 P, 2 P]`,
# row t for query t. Returns a tensor `[H]`.

# %% [markdown]
# <details><summary>Hint</summary>
#
# The queries are t = P … 2 P − 1. Two index tensors of the same length pick one weight for each t
# from every head: `weights_HTS[:, t, there]`.
#
# </details>

# %% tags=["exercise"]
def induction_score(weights_HTS, P):
    """Mean weight of each head on what came after the last occurrence."""
    ### BEGIN SOLUTION
    queries = torch.arange(P, 2 * P)
    return weights_HTS[:, queries, queries - P + 1].mean(dim=-1)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab15.induction_score", induction_score)

# %% tags=["measure"]
P = 40
random_ids = torch.randint(1000, 20_000, (P,), generator=torch.Generator().manual_seed(1)).tolist()


def finders():
    """Scores of all heads, and the five best places."""
    found_LH = attention_maps(model, random_ids * 2, keep=lambda w: induction_score(w, P))
    return found_LH, found_LH.flatten().topk(5).indices.tolist()


score_LH, best = finders()
for place in best:
    layer, head = divmod(place, config.H)
    print(f"layer {layer:2}, query head {head}: {score_LH[layer, head]:4.0%} of its weight")
print(f"median of {score_LH.numel()} heads: {score_LH.median():.0%}")

# %% [markdown]
# ## Exercise 5 · What a head brings
#
# **Outcome:** an OV circuit from the weights · **Difficulty:** ●●○ · **Time:** 10 min
#
# If a head looks at token s with weight 1, it adds $x_s\,OV$ to the stream, where $x_s$ is the
# token's row (normed). Write `ov_matrix(w_v, w_o, head, H, K)` as an `[M, M]` matrix for a *row* x:
# `x @ OV`. `w_v` is `[K D, M]`, the value projection: values are `w_v @ x`, KV head by KV head.
# `w_o` is `[M, H D]`, the output projection: it takes the outputs of all query heads, one after the
# other. (What is measured with it here and below wants the heads of exercise 4, so do that first.)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Query head h reads KV head h // G. It owns D columns of `w_o`. For a column x it would be
# `w_o_columns @ w_v_rows @ x`; transpose that.
#
# </details>

# %% tags=["exercise"]
def ov_matrix(w_v, w_o, head, H, K):
    """[M, M]: x @ OV is what a query head adds for a token that it looks at."""
    ### BEGIN SOLUTION
    D, kv_head = len(w_v) // K, head // (H // K)
    value_DM = w_v[kv_head * D : (kv_head + 1) * D]
    output_MD = w_o[:, head * D : (head + 1) * D]
    return value_DM.T @ output_MD.T
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab15.ov_matrix", ov_matrix)

# %% [markdown]
# Does a head name the token that it looks at? Each token's row goes through the head's OV and is
# compared with the names (output embeddings) of the P tokens. The heads that *find* best, and some
# others:

# %% tags=["measure"]
score_LH, best = finders()
streams = []
hooks = [
    block.register_forward_pre_hook(lambda block, args: streams.append(args[0]))
    for block in model.layers
]
cache = ConcatCache(config)
with cache.step({cache.add(): P}) as view:
    model.hidden(torch.tensor(random_ids), view)
for hook in hooks:
    hook.remove()
names_PM = model.embed.weight[torch.tensor(random_ids)] * model.norm.weight


def names_itself(layer, head):
    """Share of the tokens whose own name the head says loudest."""
    attn, norm = model.layers[layer].attn, model.layers[layer].attn_norm
    w_v = attn.qkv.plain_weight()[(config.H + config.K) * config.D :]
    x_PM = rmsnorm_reference(streams[layer], norm.weight, config.norm_eps)
    said_PP = x_PM @ ov_matrix(w_v, attn.out.plain_weight(), head, config.H, config.K) @ names_PM.T
    said_PP = said_PP - said_PP.mean(dim=0)
    return (said_PP.argmax(dim=1) == torch.arange(P))[1:].float().mean().item()


others = [(23, 0), (24, 5), (5, 1), (12, 4)]
for layer, head in [divmod(place, config.H) for place in best] + others:
    looks, names = score_LH[layer, head], names_itself(layer, head)
    found = f"looks at what came after {looks:4.0%}, names the token {names:4.0%}"
    print(f"layer {layer:2}, head {head}: {found}")

# %% [markdown]
# ## Exercise 6 · Spoil one head
#
# **Outcome:** a lesion that takes away one thing only · **Difficulty:** ●○○ · **Time:** 5 min
#
# Write `spoiled(x_SKD, head)`: cached keys or values in which every row of one KV head is the mean
# of that head's rows. The cache's own tensor must stay as it is: others may be reading it.

# %% [markdown]
# <details><summary>Hint</summary>
#
# `x[:, head]` is a view, not a copy: what is written there is written into the cache.
#
# </details>

# %% tags=["exercise"]
def spoiled(x_SKD, head):
    """A copy in which one head's rows are all their mean."""
    ### BEGIN SOLUTION
    out_SKD = x_SKD.clone()
    out_SKD[:, head] = x_SKD[:, head].mean(dim=0)
    return out_SKD
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab15.spoiled", spoiled)

# %% [markdown]
# The model has read the random tokens once. Now it reads them again. How many of them does it
# foresee, when some KV heads' cached rows of the first reading are spoiled?

# %% tags=["measure"]
score_LH, best = finders()
cache = ConcatCache(config)
read_once = cache.add()
with cache.step({read_once: P}) as view:
    model.hidden(torch.tensor(random_ids), view)


def repeats(*lesions):
    """Share of the tokens foreseen the second time. A lesion is (layer, KV head, "K" or "V")."""
    fork = cache.fork(read_once)
    for layer, head, which in lesions:
        pair = list(cache._kv[fork, layer])
        pair["KV".index(which)] = spoiled(pair["KV".index(which)], head)
        cache._kv[fork, layer] = tuple(pair)
    with cache.step({fork: P - 1}) as view:
        logits = model(torch.tensor(random_ids[:-1]), view)
    cache.free(fork)
    return (logits.argmax(-1) == torch.tensor(random_ids[1:])).float().mean().item()


layer, head = divmod(best[0], config.H)
kv_head = head // config.G
other = (kv_head + 1) % config.K
print(f"{'nothing spoiled:':36} {repeats():4.0%}")
for head, which, name in ((kv_head, "V", "values"), (kv_head, "K", "keys"), (other, "V", "values")):
    lesion = f"layer {layer}, KV head {head}, {name} spoiled:"
    print(f"{lesion:36} {repeats((layer, head, which)):4.0%}")

# %% [markdown] tags=["solution"]
# One cached head of L · K. The heads that *name* tokens best sit in later layers: finding and
# naming are two jobs, done by different heads.

# %% [markdown]
# ## Challenge · As harmless as possible (optional)
#
# **Outcome:** which caches a task can do without · **Difficulty:** ●●● · **Time:** 20 min
#
# The other way round: spoil the *values* of as many KV heads as you can, so that the model still
# foresees at least 60 % of the repeated tokens. Change `chosen` and run the cell again; the board
# keeps your runs. What stands there is a start: the six with the lowest induction scores in the
# upper half of the layers. Take six from all layers in the same way and see what happens: a low
# score does not make a head harmless. Which layers can you take whole?

# %% tags=["measure"]
score_LH, best = finders()
by_kv_head = score_LH.unflatten(1, (config.K, config.G)).amax(dim=2)
ranked = [divmod(place, config.K) for place in by_kv_head.flatten().argsort().tolist()]


def tried(name, chosen):
    """The board with the values of these KV heads spoiled, or None where too much is lost."""
    share = repeats(*((layer, head, "V") for layer, head in chosen))
    verdict = "counts" if share >= 0.6 else "too much is lost"
    print(f"{len(chosen)} of {config.L * config.K} spoiled, {share:.0%} foreseen: {verdict}")
    if share >= 0.6:
        measures = dict(spoiled=len(chosen), foreseen=share)
        return kvedu.leaderboard("lab15.harmless", label=name, highest=True, **measures)


chosen = [(layer, head) for layer, head in ranked if layer >= config.L // 2][:6]
tried("lowest scores, upper half", chosen)

# %% [markdown] tags=["solution"]
# More than half of the KV heads can go, in whole layers. These were found one by one: in the order
# of what each layer costs alone, it stayed spoiled if enough was still foreseen. Layer 18, which
# finds, must stay. And harm does not add up: layer 2 is among those that go, beside layers 0 and 1,
# although by itself it would cost most of the tokens.

# %% tags=["solution"]
def whole(*layers):
    """All KV heads of these layers."""
    return [(layer, head) for layer in layers for head in range(config.K)]


for layer in (2, 18):
    lesions = [(layer, head, "V") for layer, head in whole(layer)]
    print(f"layer {layer} alone spoiled: {repeats(*lesions):.0%} foreseen")
tried("whole layers", whole(0, 1, 2, 6, 10, 11, 12, 13, 15, 16, 19, 21, 25, 26, 27, 28, 29))
