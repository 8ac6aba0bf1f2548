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
# # Lab 13 · Choosing a strategy
#
# You will write the two halves of an evicting cache, a rule that keeps and a score that judges, and
# put yours under the real model. You will attend over latents without making a single key, and
# choose a strategy from a table. Chapter 13 has the story.
#
# The letters are the book's: **S** cached tokens, **Q** queries that were watched, **H** query
# heads, **K** KV heads, **D** head size, **Z** width of a latent.

# %%
import math

import torch

import kvedu
from kvedu import ConcatCache, EvictingCache
from kvedu.caches.scores import recent as latest
from kvedu.caches.scores import watches

_ = torch.set_grad_enabled(False)

# %% [markdown]
# ## Exercise 1 · Score, keep
#
# **Outcome:** the half of an evicting cache that does not depend on the policy · **Difficulty:**
# ●○○ · **Time:** 12 min
#
# A layer holds S tokens for each of K KV heads, and a policy has scored them: `scores_SK`, the
# higher the better. `budget` tokens may stay. The first `sinks` and the last `recent` tokens always
# stay, whatever their score, and they count towards the budget (which is never smaller than both
# together). Each head chooses for itself.
#
# Write `kept(scores_SK, budget, sinks, recent)`: an integer tensor `[min(budget, S), K]` with the
# rows that each head keeps, in the text's order.

# %% [markdown]
# <details><summary>Hint</summary>
#
# What has a score of infinity is among the best of any budget that has room for it. `topk` gives
# the best rows of each column, in an order that is not the text's.
#
# </details>

# %% tags=["exercise"]
def kept(scores_SK, budget, sinks, recent):
    """Rows that each head keeps, ascending: [min(budget, S), K]."""
    ### BEGIN SOLUTION
    S = len(scores_SK)
    rows = torch.arange(S)
    always_S = (rows < sinks) | (rows >= S - recent)
    judged_SK = scores_SK.masked_fill(always_S[:, None], math.inf)
    return judged_SK.topk(min(budget, S), dim=0).indices.sort(dim=0).values
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab13.kept", kept)

# %% [markdown]
# ## Exercise 2 · A fair measure
#
# **Outcome:** a heavy hitter that is not merely old · **Difficulty:** ●●○ · **Time:** 12 min
#
# "Keep what drew most attention." Added up over all queries, attention favors the first tokens:
# more queries could see them. A token that came late may draw more from each query and still lose.
#
# `weights_QSK` holds the attention weights of the *last* Q queries of a text of S tokens: query q
# stands at position S − Q + q and sees the tokens up to its own. Hidden tokens have weight 0. Write
# `fair_attention(weights_QSK)`: for each token and head the mean over those of the Q queries that
# could see it, `[S, K]`.

# %% [markdown]
# <details><summary>Hint</summary>
#
# The last token is seen by one query, itself. The one before by two. From some token on, backwards,
# it is all Q of them.
#
# </details>

# %% tags=["exercise"]
def fair_attention(weights_QSK):
    """Mean weight that a token drew from the queries that could see it: [S, K]."""
    ### BEGIN SOLUTION
    Q, S, _ = weights_QSK.shape
    seen_by_S = (S - torch.arange(S)).clamp(max=Q)
    return weights_QSK.sum(dim=0) / seen_by_S[:, None]
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab13.fair_attention", fair_attention)

# %% [markdown]
# On a real head: which tokens of a sentence does each measure put first?

# %% tags=["measure"]
from kvedu.caches.scores import Held

model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu").pack()
tokenizer = model.tokenizer
ids = tokenizer.encode(
    "The keeper counts the ships every night, "
    "and writes the number of each ship in a small red book."
)
shown = {}


@watches(len(ids))
def look(held: Held):
    """A policy that only looks: it keeps what it was shown."""
    if len(held.k_SKD) == len(ids):
        shown[len(shown)] = held.weights_QSK[-len(ids) :]
    return held.positions_SK.float()


cache = EvictingCache(model.config, budget=len(ids) - 1, score=look)
with cache.step({cache.add(): len(ids)}) as view:
    model(torch.tensor(ids), view, view.last_rows)
weights_QSK = shown[12]  # a layer in the middle
for name, scores_SK in (("sum", weights_QSK.sum(0)), ("fair", fair_attention(weights_QSK))):
    best = scores_SK[1:, 0].topk(6).indices + 1  # without the first token, which draws most by far
    print(f"{name:5}", *(repr(tokenizer.decode([ids[i]]).strip()) for i in best))

# %% [markdown]
# ## Exercise 3 · Scores without keys
#
# **Outcome:** the trick that makes multi-head latent attention cheap · **Difficulty:** ●●○ ·
# **Time:** 15 min
#
# In MLA the cache holds one latent c of width Z for each token. Head h's key would be $W_h c$, with
# $W_h$ of shape `[D, Z]`: for S tokens and H heads that is S · H · D numbers, as many as a full
# cache has. But a decode step needs scores, not keys.
#
# Write `absorbed_scores(q_HD, up_HDZ, c_SZ)`: the scores `[H, S]` of one new token's queries, q · k
# / √D, without making any tensor as large as the keys.

# %% [markdown]
# <details><summary>Hint</summary>
#
# A dot product with a projected vector is a dot product with the vector itself, of something that
# has been projected the other way.
#
# </details>

# %% tags=["exercise"]
def absorbed_scores(q_HD, up_HDZ, c_SZ):
    """Scores [H, S] of one token's queries against latents."""
    ### BEGIN SOLUTION
    q_HZ = torch.einsum("hd,hdz->hz", q_HD, up_HDZ)
    return q_HZ @ c_SZ.T / math.sqrt(q_HD.shape[1])
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab13.absorbed_scores", absorbed_scores)

# %% [markdown]
# ## Exercise 4 · Outputs without values
#
# **Outcome:** the other half of it · **Difficulty:** ●●○ · **Time:** 8 min
#
# The values come from the same latents, through another projection. Write
# `absorbed_output(weights_HS, c_SZ, up_HDZ)`: each head's output `[H, D]`, the weighted sum of its
# values, again without making them.

# %% [markdown]
# <details><summary>Hint</summary>
#
# Projecting is linear. Must you project S vectors and add them up, or can you do it in the other
# order?
#
# </details>

# %% tags=["exercise"]
def absorbed_output(weights_HS, c_SZ, up_HDZ):
    """Outputs [H, D] of heads that attend over latents."""
    ### BEGIN SOLUTION
    mixed_HZ = weights_HS @ c_SZ
    return torch.einsum("hz,hdz->hd", mixed_HZ, up_HDZ)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab13.absorbed_output", absorbed_output)

# %% [markdown]
# What it saves, with DeepSeek-V2's sizes: multiplications of one decode step in one layer, for the
# scores alone.

# %% tags=["measure"]
H, D, Z = 128, 128, 512
for S in (1_024, 32_768):
    written_out = S * H * D * Z + S * H * D
    absorbed = H * D * Z + S * H * Z
    costs = f"keys written out {written_out / 1e9:8.1f} G, absorbed {absorbed / 1e9:5.2f} G"
    print(f"S = {S:6,}: {costs}, {written_out / absorbed:4.0f} times fewer")
q_HD, up_HDZ, c_SZ = torch.randn(H, D), torch.randn(H, D, Z) / math.sqrt(Z), torch.randn(256, Z)
k_SHD = torch.einsum("hdz,sz->shd", up_HDZ, c_SZ)
plain_HS = torch.einsum("hd,shd->hs", q_HD, k_SHD) / math.sqrt(D)
same = torch.allclose(absorbed_scores(q_HD, up_HDZ, c_SZ), plain_HS, atol=1e-4)
print("the same scores:", same)

# %% [markdown]
# ## Exercise 5 · Choose
#
# **Outcome:** a decision that can be defended · **Difficulty:** ●○○ · **Time:** 10 min
#
# `rows` is a list of strategies, each a dict: `name`, `bytes` (what the caches take), `seconds` (of
# a decode step), `loss` (on the task that matters, measured), `retrains` (whether it needs a model
# that was trained for it). `room` bytes are there for caches, and a step may take `limit` seconds.
#
# Write `choose(rows, room, limit)`: the name of the strategy that loses least among those that fit,
# are in time, and work with the model as it is. `None` if there is none. What takes exactly the
# memory, or exactly the time, is fine. No two losses of those are equal.

# %% [markdown]
# <details><summary>Hint</summary>
#
# Two steps: who can be had at all, and who of them is best. The second one has to cope with nobody.
#
# </details>

# %% tags=["exercise"]
def choose(rows, room, limit):
    """Name of the strategy that loses least and can be had, or None."""
    ### BEGIN SOLUTION
    possible = [
        row
        for row in rows
        if row["bytes"] <= room and row["seconds"] <= limit and not row["retrains"]
    ]
    best = min(possible, key=lambda row: row["loss"], default=None)
    return None if best is None else best["name"]
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab13.choose", choose)

# %% [markdown]
# ## Challenge · Beat `recent` (optional, open target)
#
# **Outcome:** an eviction policy of your own, on your own board · **Difficulty:** ●●● ·
# **Time:** 20 min
#
# A context holds twelve secrets ("The secret code of the tower is 4817."), and six of them are
# asked for. The cache may keep a quarter of the context. Each question comes in the same step as
# the end of its context, so a policy can see what the question looks at. Keeping the newest quarter
# finds the secrets that happen to stand there. You can do better.
#
# Write `my_score(held)`, which returns a score for each token and KV head, `[S, K]`.
# `held.weights_QSK` are the attention weights of the last 32 queries (the mean over the query heads
# that share a KV head), `held.k_SKD`, `held.v_SKD` keys and values, `held.positions_SK` where the
# tokens stand. The check looks whether it is a policy. The cell below it measures.

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The last few queries are the question. What did *they* look at?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A code is several tokens long, and a question looks at one of them at a time. Let a token share in
# its neighbors' luck: `torch.nn.functional.max_pool1d`.
#
# </details>

# %% tags=["exercise"]
@watches(32)
def my_score(held):
    """A score for each token and KV head: the higher, the longer it stays."""
    ### BEGIN SOLUTION
    drawn_KS = held.weights_QSK[-8:].sum(dim=0).T
    return torch.nn.functional.max_pool1d(drawn_KS, kernel_size=9, stride=1, padding=4).T
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab13.my_score", my_score)

# %% tags=["learner"]
idea = "my first idea"

# %% tags=["solution"]
idea = "the question votes, neighbors share"

# %% tags=["measure"]
from kvedu.compress.evaluate.needles import keys_quizzes
from kvedu.compress.evaluate.quiz import accuracy, answer

CONTEXT = 256
quizzes = keys_quizzes(tokenizer.encode, keys=12, asked=6, n=1, length=CONTEXT, seed=3)


def recall(make):
    """Share of secrets that are found."""
    return accuracy(answer(model, quizzes, make, aware=True))


def quarter(score):
    settings = dict(budget=CONTEXT // 4, score=score, sinks=4, recent=16)
    return lambda config: EvictingCache(config, **settings)


full, newest, mine = map(recall, (ConcatCache, quarter(latest), quarter(my_score)))
print(f"secrets found with the whole context {full:.0%}, ", end="")
print(f"with the newest quarter {newest:.0%}, with yours {mine:.0%}")
kvedu.leaderboard("lab13.my_score", highest=True, label=idea, recall=mine)

# %% [markdown] tags=["solution"]
# The score is SnapKV's idea with a shorter window: let the question's own tokens vote, and spread
# each vote to the neighbors. It knows the question. A server that evicts *before* the question is
# known has no such help, and there no policy of the library beats the newest quarter by much on
# this model: chapter 13 shows both.
