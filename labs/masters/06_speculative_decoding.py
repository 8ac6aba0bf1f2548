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
# # Lab 6 · Speculative decoding
#
# You will write the rule that decides which guesses are kept, prove with a line of code that it
# changes nothing, guess by looking up, and mask a tree. Yours will run under the real model and
# change no token. Then a draft passes every test, its text is right to the last letter, and it is
# slower than it should be. Chapter 6 has the story.
#
# The letters are the book's: **V** vocabulary, **T** new tokens of a pass, **S** cached tokens.
# **p** is the target's distribution of the next token, **q** the draft's, **k** how many tokens are
# guessed in a round.

# %%
import math
import textwrap

import torch

import kvedu
from kvedu import ConcatCache, texts
from kvedu.kernels.attention import attention_reference
from kvedu.model.loops import greedy_cached
from kvedu.speculative.proposer import Proposer
from kvedu.speculative.speculate import speculate
from kvedu.speculative.tree import TokenTree
from kvedu.texts import held_out

_ = torch.set_grad_enabled(False)

# %% [markdown]
# ## Exercise 1 · The acceptance rule
#
# **Outcome:** the few lines on which all of speculation stands · **Difficulty:** ●●○ ·
# **Time:** 15 min
#
# A draft has drawn the token `token` from its distribution `q_V`. The target, had it been asked,
# would have drawn from `p_V`. Keep the guess with probability $\min(1, p(x)/q(x))$: that is, if
# `u`, a number drawn uniformly between 0 and 1, is below $p(x)/q(x)$. If it is not kept, a
# correction is drawn from what p has beyond q: $\max(p - q, 0)$, scaled so that it sums to 1.
#
# Write `accept(token, q_V, p_V, u)`. It returns a pair: whether the guess is kept, and the
# distribution from which the correction is drawn, `None` where there is nothing to correct. (The
# drawing itself is somebody else's business.)

# %% [markdown]
# <details><summary>Hint</summary>
#
# What p has beyond q: the difference, and 0 where it is negative (`clamp`). It does not sum to 1
# yet.
#
# </details>

# %% tags=["exercise"]
def accept(token, q_V, p_V, u):
    """Whether a drawn guess is kept; if not, the distribution of the correction."""
    ### BEGIN SOLUTION
    if u < float(p_V[token] / q_V[token]):
        return True, None
    left_V = (p_V - q_V).clamp(min=0)
    return False, left_V / left_V.sum()
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab06.accept", accept)

# %% [markdown]
# Does it work? Draw many times and count. The draft below likes what the target does not. The third
# row is your rule's, the first two are mistakes that look reasonable, and the last is p itself. If
# a rule is right, its row differs from p by chance only, and the statistic at the end of the row
# (chi-square, with two degrees of freedom) exceeds 13.8 once in a thousand times.

# %% tags=["measure"]
p_V = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
q_V = torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64)


def q_forgotten(token, q_V, p_V, u):
    extra_V = torch.relu(p_V - q_V)
    return u < p_V[token], extra_V / extra_V.sum()


def correction_from_p(token, q_V, p_V, u):
    return u < p_V[token] / q_V[token], p_V


def shares(rule, n=10_000):
    """How often each token comes out, with one guess."""
    generator, counts = torch.Generator().manual_seed(6), torch.zeros(3, dtype=torch.float64)

    def draw(weights_V):
        return int(torch.multinomial(weights_V, 1, generator=generator))

    for _ in range(n):
        guess = draw(q_V)
        kept, rest_V = rule(guess, q_V, p_V, float(torch.rand(1, generator=generator)))
        counts[guess if kept else draw(rest_V)] += 1
    return counts / n, float(((counts - n * p_V) ** 2 / (n * p_V)).sum())


for rule in (q_forgotten, correction_from_p, accept):
    share_V, statistic = shares(rule)
    numbers = " ".join(f"{x:.3f}" for x in share_V.tolist())
    print(f"{rule.__name__:18} {numbers}   statistic {statistic:8.1f}")
print(f"{'p':18}", *(f"{x:.3f}" for x in p_V.tolist()))

# %% [markdown]
# ## Exercise 2 · The proof, in one line
#
# **Outcome:** a test of any rule that needs no chance · **Difficulty:** ●●○ · **Time:** 10 min
#
# Drawing ten thousand times is a weak test: an error of a thousandth passes it. The distribution of
# what comes out can be *computed*.
#
# Write `emitted(q_V, keep_V, rest_V)`: the probability of each token to come out, if a guess is
# drawn from `q_V`, guess x is kept with probability `keep_V[x]`, and after a rejection the token is
# drawn from `rest_V` instead.

# %% [markdown]
# <details><summary>Hint</summary>
#
# Token x comes out in two ways: it is guessed and kept, or *any* guess is rejected and x is the
# correction.
#
# </details>

# %% tags=["exercise"]
def emitted(q_V, keep_V, rest_V):
    """Probability [V] of each token to come out."""
    ### BEGIN SOLUTION
    both_V = q_V * keep_V
    return both_V + (1 - both_V.sum()) * rest_V
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab06.emitted", emitted)

# %% [markdown]
# With the right rule, guessed-and-kept is $q \min(1, p/q) = \min(p, q)$. A rejection has the
# probability $1 - \sum \min(p, q)$, and that is also the sum of $\max(p - q, 0)$, so scaling and
# weight cancel. What comes out is $\min(p, q) + \max(p - q, 0) = p$, whatever q is. Your function
# says the same to rounding, for drafts at random; and it sees a mistake that no sampling would have
# found.

# %% tags=["measure"]
generator = torch.Generator().manual_seed(0)
worst = 0.0
for _ in range(200):
    p, q = torch.randn(2, 50, dtype=torch.float64, generator=generator).softmax(-1)
    left = torch.relu(p - q)
    out = emitted(q, (p / q).clamp(max=1), left / left.sum())
    worst = max(worst, float((out - p).abs().max()))
print("200 drafts, 50 tokens: differs from p by less than", 1e-12 if worst < 1e-12 else worst)
left = torch.relu(p - q)
hardly_wrong = emitted(q, (p / q * 1.001).clamp(max=1), left / left.sum())
print(f"kept a thousandth too often: off by {float((hardly_wrong - p).abs().max()):.0e}")

# %% [markdown]
# ## Exercise 3 · Guess what followed before
#
# **Outcome:** a proposer without a model, under the real one · **Difficulty:** ●●○ ·
# **Time:** 15 min
#
# The cheapest draft of all: find the last few tokens of the text somewhere earlier in it, and guess
# that what followed then follows now.
#
# Write `lookup(ids, k, longest)`: a list of at most k tokens. Take the last n tokens of `ids`, n =
# `longest` first, then fewer, down to 1. Where they stand earlier in `ids`, the *latest* such place
# counts; return the tokens that follow it, as many as there are, at most k. Return `[]` if nothing
# is found.

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The last n tokens always stand at the end of `ids`. That is not an earlier place.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Two loops, over n and over the places from the end to the front; return at the first match.
#
# </details>

# %% tags=["exercise"]
def lookup(ids, k, longest):
    """Up to k tokens that followed the last n at their latest earlier place; [] without one."""
    ### BEGIN SOLUTION
    for n in range(longest, 0, -1):
        for start in range(len(ids) - n - 1, -1, -1):
            if ids[start : start + n] == ids[len(ids) - n :]:
                return ids[start + n : start + n + k]
    return []
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab06.lookup", lookup)

# %% [markdown]
# Now under the real model. A proposer of the library answers each request with a token tree; yours
# is a chain. The task repeats its input: a text, and then the words that ask for it once more.

# %% tags=["measure"]
model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu").pack()
tokenizer = model.tokenizer


class MyLookup(Proposer):
    """A proposer on `lookup`."""

    def propose(self, asks):
        return [TokenTree.chain(lookup(list(ask.ids), min(6, ask.limit), 3)) for ask in asks]


prompt = tokenizer.encode(held_out.group("edit").prompts[0])
plain = greedy_cached(model, prompt, 40, ConcatCache(model.config, device=model.device))
guessed = speculate(model, prompt, MyLookup(), max_new_tokens=40, ignore_eos=True)
print(textwrap.fill("… " + tokenizer.decode(plain).strip() + " …", 84))
print("equal:", list(guessed.completion.token_ids) == plain)
print(f"{len(plain)} tokens: 40 passes without guesses, {1 + len(guessed.rounds)} with them")
print("tokens in each round:", *(one.emitted for one in guessed.rounds))

# %% [markdown]
# ## Exercise 4 · A tree of guesses
#
# **Outcome:** several guesses for one place, verified in one pass · **Difficulty:** ●●○ ·
# **Time:** 15 min
#
# A chain ends at its first wrong guess. A *tree* has several guesses for a place, and each may go
# on. Here a tree is a list of parents: node i hangs from node `parents[i]`, which stands earlier in
# the list, or from the text's last token where that is `-1`. All nodes go through the model in one
# pass. So a node must not see its siblings, nor anybody else's children.
#
# **Part one.** Write `tree_mask(parents)`: a boolean tensor [T, T]. Row i is true at the nodes that
# node i may see: itself and its ancestors.

# %% [markdown]
# <details><summary>Hint</summary>
#
# When you come to node i, its parent's row is ready.
#
# </details>

# %% tags=["exercise"]
def tree_mask(parents):
    """Boolean [T, T]: which nodes each node sees."""
    ### BEGIN SOLUTION
    seen_TT = torch.eye(len(parents), dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent != -1:
            seen_TT[node] |= seen_TT[parent]
    return seen_TT
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab06.tree_mask", tree_mask)

# %% [markdown]
# **Part two.** Keys and queries are rotated by their positions. Write
# `tree_positions(parents, length)`: the position of each node, as a list, where the text before the
# tree has `length` tokens at positions 0 to `length - 1`.

# %% tags=["exercise"]
def tree_positions(parents, length):
    """Position of each node, below a text of `length` tokens."""
    ### BEGIN SOLUTION
    places = []
    for parent in parents:
        places.append(length if parent == -1 else places[parent] + 1)
    return places
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab06.tree_positions", tree_positions)

# %% [markdown]
# Your mask on attention with random keys and values: each node of a tree must get what it would get
# if its path were all that there is. Then the library's caches, which make such a mask from
# `parents`: the logits of every node are those of its path, run as a plain text.

# %% tags=["measure"]
parents = [-1, -1, 0, 0, 1, 2]
paths = [[0], [1], [0, 2], [0, 3], [1, 4], [0, 2, 5]]
S, T = 5, len(parents)
q, k, v = torch.randn(3, S + T, 4, 16, generator=generator)
visible = torch.cat([torch.ones(T, S, dtype=torch.bool), tree_mask(parents)], dim=1)
as_tree = attention_reference(q[S:], k, v, visible)
gaps = []
for node, path in enumerate(paths):
    rows = [*range(S), *(S + i for i in path)]
    everything = torch.ones(1, len(rows), dtype=torch.bool)
    alone = attention_reference(q[S + node][None], k[rows], v[rows], everything)
    gaps.append(float((as_tree[node] - alone[0]).abs().max()))
print("attention under your mask differs from the paths by less than 1e-6:", max(gaps) < 1e-6)

text = tokenizer.encode("The capital of")
tokens = tokenizer.encode(" France Italy is has is Paris")
cache = ConcatCache(model.config, device=model.device)
seq = cache.add()
with cache.step({seq: len(text)}) as view:
    model(torch.tensor(text), view, view.last_rows)
with cache.step({seq: T}, {seq: parents}) as view:
    right_place = view.positions.tolist() == tree_positions(parents, len(text))
    tree_logits = model(torch.tensor(tokens), view)
for node, path in enumerate(paths):
    plain_cache = ConcatCache(model.config, device=model.device)
    plain_seq = plain_cache.add()
    ids = text + [tokens[i] for i in path]
    with plain_cache.step({plain_seq: len(ids)}) as view:
        logits = model(torch.tensor(ids), view, view.last_rows)[0]
    same = bool((logits - tree_logits[node]).abs().max() < 1e-3)
    following = tokenizer.decode([int(logits.argmax())])
    print(f"{tokenizer.decode(ids)!r:33} equal in the tree: {same}, next {following!r}")
print("positions as yours:", right_place)

# %% [markdown]
# ## Exercise 5 · Right, and too slow
#
# **Outcome:** a fault that no comparison of texts can find · **Difficulty:** ●●● · **Time:** 25 min
#
# A draft model has a cache of its own, which must follow the text. `Draft` below guesses k tokens
# with a `machine`, a model with a cache: `feed(tokens)` runs tokens and returns the most likely
# next one, `forget(length)` keeps the first `length` tokens of the cache, `length` says how many it
# holds. `done` is how many of the text's tokens the cache holds. After each round,
# `verified(ids, kept)` tells the draft the text as it is now: `kept` of the guesses were right, and
# the target has added one token.

# %%
class Draft:
    """Guesses tokens with a machine whose cache follows the text."""

    def __init__(self, machine):
        self.machine, self.done = machine, 0

    def propose(self, ids, k):
        """k guesses after the text ids."""
        guesses = [self.machine.feed(ids[self.done :])]  # what has not been run yet
        while len(guesses) < k:
            guesses.append(self.machine.feed(guesses[-1:]))
        return guesses

    def verified(self, ids, kept):
        """The text is ids now; its last token is the target's, and has not been run."""
        self.done = len(ids) - 1
        self.machine.forget(self.done)


class Machine:
    """A model with a cache; `held` lists the tokens in the cache."""

    def __init__(self, model):
        self.model, self.held = model, []
        self.cache = ConcatCache(model.config, device=model.device)
        self.seq = self.cache.add()

    @property
    def length(self):
        return len(self.held)

    def feed(self, tokens):
        with self.cache.step({self.seq: len(tokens)}) as view:
            logits = self.model(torch.tensor(tokens), view, view.last_rows)[0]
        self.held += tokens
        return int(logits.argmax())

    def forget(self, length):
        if length < len(self.held):
            self.cache.truncate(self.seq, length)
            del self.held[length:]


def decode(draft, prompt, n, k):
    """Greedy decoding with a draft: n tokens, kept guesses by round, and for `first_stale`
    the text and the draft's cache at each round's start."""
    cache = ConcatCache(model.config, device=model.device)
    ids, kept, rounds = list(prompt), [], []
    seq = cache.add()
    while len(ids) < len(prompt) + n:
        rounds.append((list(ids), list(draft.machine.held)))
        guesses = draft.propose(ids, k)
        new = ids[cache.length(seq) :] + guesses
        with cache.step({seq: len(new)}) as view:
            best = model(torch.tensor(new), view)[-k - 1 :].argmax(-1).tolist()
        right = 0
        while right < k and guesses[right] == best[right]:
            right += 1
        ids += guesses[:right] + [best[right]]
        cache.truncate(seq, len(ids) - 1)
        draft.verified(list(ids), right)
        kept.append(right)
    return ids[len(prompt) : len(prompt) + n], kept, rounds


# %% [markdown]
# The draft is the target itself here: whatever it guesses is right. So every round must keep all
# four guesses.

# %% tags=["measure"]
story = tokenizer.encode(texts.read("story"))[:40]
plain = greedy_cached(model, story, 40, ConcatCache(model.config, device=model.device))
said, kept, rounds = decode(Draft(Machine(model)), story, 40, k=4)
print("text equal to plain decoding:", said == plain)
print("guesses kept in each round:", *kept)

# %% [markdown]
# The text is right: the target sees to that. The first round keeps everything; but after it, in
# most rounds, the same model no longer agrees with itself.
#
# **Part one.** Write the invariant: `first_stale(rounds)`. `rounds` lists for each round a pair:
# the text at its start, and the tokens in the draft's cache. Return the number (from 0) of the
# first round in which the cache is not in order, `None` if there is none. It is in order if what it
# holds is a beginning of the text, and at least one token of the text is left to run. (Being behind
# is no fault.)

# %% [markdown]
# <details><summary>Hint</summary>
#
# `held == ids[: len(held)]` says one half of it.
#
# </details>

# %% tags=["exercise"]
def first_stale(rounds):
    """Number of the first round whose cache is not in order; None if all are."""
    ### BEGIN SOLUTION
    for number, (ids, held) in enumerate(rounds):
        if len(held) >= len(ids) or held != ids[: len(held)]:
            return number
    return None
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab06.first_stale", first_stale)

# %% tags=["measure"]
at = first_stale(rounds)
ids, held = rounds[at]
wrong = next(i for i, (a, b) in enumerate(zip(held, ids)) if a != b)
print(f"round {at}: the cache holds {len(held)} of {len(ids)} tokens")
print("text :", tokenizer.decode(ids[wrong - 5 :]).replace("\n", " "))
print("cache:", tokenizer.decode(held[wrong - 5 :]).replace("\n", " "))

# %% [markdown]
# **Part two.** A token is missing. Which one, and in which rounds does it happen? Mend the draft:
# write `verified` anew. Do not throw the cache away: each round must run only what is missing.

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Of k guesses, how many have been *fed* to the machine when `propose` returns?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# If all k were kept, the text has grown by k + 1 tokens. The machine knows how many it holds.
#
# </details>

# %% tags=["exercise"]
class MendedDraft(Draft):
    def verified(self, ids, kept):
        """The text is ids now; count as done what the machine holds of it, and no more."""
        ### BEGIN SOLUTION
        in_step = min(self.machine.length, len(ids) - 1)
        self.machine.forget(in_step)
        self.done = in_step
        ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab06.mended_draft", MendedDraft)

# %% tags=["measure"]
said, kept, rounds = decode(MendedDraft(Machine(model)), story, 40, k=4)
print("text equal to plain decoding:", said == plain)
print("guesses kept in each round:", *kept)
at = first_stale(rounds)
print("first stale round:", "none" if at is None else at)

# %% [markdown] tags=["solution"]
# The last guess is proposed, but never run by the draft. If all are kept it belongs to the text,
# and the target adds one more: two tokens are missing, and only one was fed. Verification hides
# such faults, because it mends what they spoil. What shows them is *acceptance*: with a draft that
# is the target itself every guess must be kept, in every round.
# `tests/speculative/test_draft_model.py` asks for exactly that, and the library's `DraftCache`
# keeps no count at all: it compares the tokens that it holds with the text.

# %% [markdown]
# ## Challenge · The best tree (optional)
#
# **Outcome:** a tree's shape from measured acceptance · **Difficulty:** ●●● · **Time:** 15 min
#
# Verifying a handful of nodes costs about the same, however they hang together. Which ones should
# they be? `shares[d][r]` is the probability that the draft's guess of rank r (0 is its best) at
# depth d is the target's choice, if all guesses above it were right. Siblings exclude each other.
# Write `best_tree(shares, nodes)`: at most `nodes` paths, each a tuple of ranks, such as
# `[(0,), (0, 0), (1,)]`: the best guess, the best guess below it, and the second best beside it. A
# node's parent must be in the tree. Make the expected number of right guesses as large as it can
# be.

# %% [markdown]
# <details><summary>Hint</summary>
#
# What does a node add to the expected number? The probability that its *whole path* is right, and
# that is never more than its parent's.
#
# </details>

# %% tags=["exercise"]
def best_tree(shares, nodes):
    """Paths of the tree with the most expected right guesses."""
    ### BEGIN SOLUTION
    tree, candidates = [], {(rank,): share for rank, share in enumerate(shares[0])}
    while candidates and len(tree) < nodes:
        path = max(candidates, key=candidates.get)
        value = candidates.pop(path)
        tree.append(path)
        if len(path) < len(shares):
            for rank, share in enumerate(shares[len(path)]):
                candidates[(*path, rank)] = value * share
    return tree
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab06.best_tree", best_tree)

# %% tags=["measure"]
for name, table in (("a sure draft", [[0.9, 0.05]] * 6), ("an unsure one", [[0.45, 0.3]] * 6)):
    tree = best_tree(table, 6)
    print(f"{name}: {', '.join('-'.join(map(str, path)) for path in sorted(tree))}")
    for title, paths in (("tree", tree), ("chain", [(0,) * depth for depth in range(1, 7)])):
        right = sum(math.prod(table[d][r] for d, r in enumerate(path)) for path in paths)
        print(f"    {right:.2f} right guesses expected of this {title}")

# %% [markdown] tags=["solution"]
# A sure draft wants a chain, an unsure one a bush: there a second guess is worth more than a third
# step. Taking the best node next finds the best tree, because a node is never worth more than its
# parent, so the most valuable nodes always hang together.
