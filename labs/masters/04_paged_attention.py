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
# # Lab 4 · Paged attention
#
# You will build a block allocator, put the real model's keys and values under it, share blocks and
# copy them when they are written to, and find a double free that shows only when two conversations
# end in the wrong order. Chapter 4 has the story.
#
# The letters are the book's: **C** tokens in a page, also called a *block*, **P** prompt tokens,
# **N** new tokens, **S** tokens of a sequence, **K** KV heads, **D** head size, **L** layers. A
# *table* is a sequence's list of block ids, in order.

# %%
import math
import random

import torch

import kvedu
from kvedu import Cache, ConcatCache
from kvedu.model.loops import greedy_cached

_ = torch.set_grad_enabled(False)  # nothing is trained here

# %% [markdown]
# ## Exercise 1 · Where a token lies
#
# **Outcome:** the slot mapping, the one list in which tables and tensors meet · **Difficulty:** ●○○
# · **Time:** 8 min
#
# The memory is one row of places, C for each block: block b has the places b·C to b·C + C − 1.
# Token t of a sequence (from 0) lies in the block that stands at index t // C of its table. Write
# `slot_mapping`: for the tokens `start`, `start + 1`, …, `stop − 1` of a sequence, the places where
# their keys and values go.

# %% [markdown]
# <details><summary>Hint</summary>
#
# With C = 4 and the table [7, 2], token 5 is the second one of block 2, which begins at place 8. It
# lies at place 9.
#
# </details>

# %% tags=["exercise"]
def slot_mapping(table, start, stop, C):
    """Places of the tokens start .. stop - 1, a list of int."""
    ### BEGIN SOLUTION
    return [table[t // C] * C + t % C for t in range(start, stop)]
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab04.slot_mapping", slot_mapping)

# %% [markdown]
# ## Exercise 2 · Is a new block due?
#
# **Outcome:** the off-by-one that chapter 4 is about, once and for all · **Difficulty:** ●●○ ·
# **Time:** 8 min
#
# An engine keeps, for each sequence, the list of its *known* tokens: the prompt, and each sampled
# token as soon as it is sampled. A decode step takes in one token, the one that was sampled last:
# its key and value are computed in the step and written to the cache. Before the step, the engine
# asks whether that token needs a new block. All blocks so far are as few as the cached tokens need.
#
# Write `block_due(known, C)`: `known` is the length of the list at that moment, 2 or more; `True`
# if the step must take a block. C may be any number from 1.

# %% [markdown]
# <details><summary>Hint</summary>
#
# How many of the known tokens are cached at that moment? What is the index of the one that will be
# written? Try C = 4, prompt of 4 tokens, first new token sampled. Then try C = 1.
#
# </details>

# %% tags=["exercise"]
def block_due(known, C):
    """Whether the coming decode step must take a new block."""
    ### BEGIN SOLUTION
    written = known - 1  # index of the token that the step writes, and how many are cached
    return written % C == 0
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab04.block_due", block_due)

# %% [markdown] tags=["solution"]
# The list is one longer than the cache. `known % C == 1` says the same for C > 1, and is never true
# for C = 1: no remainder of a division by 1 is 1. `known % C == 0` would be right if `known` were
# the number of *cached* tokens.

# %% [markdown]
# ## Exercise 3 · A block allocator
#
# **Outcome:** blocks on demand, all or nothing, given back at once · **Difficulty:** ●●○ ·
# **Time:** 20 min
#
# `BlockAllocator(n_blocks, C)` owns block ids 0 … n_blocks − 1. `open(seq)` is written for you.
# Write the other two:
#
# - `grow(seq, tokens)`: that many tokens are about to come. Afterwards `lengths[seq]` counts them,
#   and the table has exactly as many blocks as that length needs. If the free blocks do not
#   suffice, raise `MemoryError` and change *nothing*.
# - `close(seq)`: the sequence has ended. All its blocks are free again, and it is forgotten.

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A sequence of 5 tokens with C = 4 has room for 3 more in its second block. How many blocks does it
# need for 9 tokens, and how many has it already?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Decide first, then act: compare the number of blocks that are missing with `len(self.free)` before
# you take any.
#
# </details>

# %% tags=["exercise"]
class BlockAllocator:
    def __init__(self, n_blocks, C):
        self.C = C
        self.free = list(range(n_blocks))
        self.tables = {}  # sequence -> its block ids, in order
        self.lengths = {}  # sequence -> its tokens

    def open(self, seq):
        """A new sequence, which holds nothing yet."""
        self.tables[seq], self.lengths[seq] = [], 0

    def grow(self, seq, tokens):
        """Blocks for that many more tokens; where there are too few, MemoryError and no change."""
        ### BEGIN SOLUTION
        length = self.lengths[seq] + tokens
        missing = -(-length // self.C) - len(self.tables[seq])
        if missing > len(self.free):
            raise MemoryError(f"{missing} blocks are needed, {len(self.free)} are free")
        for _ in range(missing):
            self.tables[seq].append(self.free.pop())
        self.lengths[seq] = length
        ### END SOLUTION

    def close(self, seq):
        """Give all its blocks back and forget it."""
        ### BEGIN SOLUTION
        self.free.extend(self.tables.pop(seq))
        del self.lengths[seq]
        ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab04.block_allocator", BlockAllocator)

# %% [markdown]
# Now put tensors under your allocator, and the model on top. `PagedOnMine` is a cache of this
# library: its `_reserve` asks your allocator for blocks, and `_write` and `_read` go through your
# slot mapping. Two conversations run in the same steps, so that their blocks interleave. They must
# say what each says alone.

# %% tags=["measure"]
class PagedOnMine(Cache):
    """Keys and values in one row of places per layer, laid out by an allocator."""

    def __init__(self, config, allocator, n_blocks, **kwargs):
        super().__init__(config, **kwargs)
        self.mine = allocator
        shape = (config.L, 2, n_blocks * allocator.C, config.K, config.D)
        self.places = torch.full(shape, torch.nan, device=self.device)

    def _allocate(self, seq, source):
        self.mine.open(seq)

    def _reserve(self, rows):
        for row in rows:
            self.mine.grow(row.seq, row.count)

    def _write(self, view, layer, k_NKD, v_NKD):
        for row in view.rows:
            places = slot_mapping(self.mine.tables[row.seq], row.start, row.total, self.mine.C)
            self.places[layer, :, places] = torch.stack((k_NKD[row.rows], v_NKD[row.rows]))

    def _read(self, layer, seq, length):
        return self.places[layer, :, slot_mapping(self.mine.tables[seq], 0, length, self.mine.C)]

    def _drop(self, seq):
        self.mine.close(seq)

    def _shrink(self, seq, length):
        """A step that fails keeps the blocks that it was given."""

    _compact = nbytes = None


model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu")
tokenizer = model.tokenizer
questions = ("Why is the sky blue?", "What causes tides?")
prompts = [tokenizer.chat([{"role": "user", "content": question}]) for question in questions]
mine = BlockAllocator(n_blocks=30, C=4)
mine.open("a try"), mine.grow("a try", 5), mine.close("a try")
cache = PagedOnMine(model.config, mine, 30, device=model.device)
seqs, new, made = [cache.add() for _ in prompts], list(prompts), [[], []]
for _ in range(10):
    with cache.step({seq: len(ids) for seq, ids in zip(seqs, new)}) as view:
        best_B = model(torch.tensor(sum(new, [])), view, view.last_rows).argmax(dim=-1)
    new = [[int(best)] for best in best_B]
    made = [old + ids for old, ids in zip(made, new)]
for seq, prompt, ids in zip(seqs, prompts, made):
    alone = greedy_cached(model, prompt, 10, ConcatCache(model.config, device=model.device))
    print(f"{'equal' if ids == alone else 'NOT EQUAL'}: {tokenizer.decode(ids)!r}")
    used, length = len(cache.mine.tables[seq]), cache.length(seq)
    print(f"    {length} tokens in {used} blocks of 4; places empty: {used * 4 - length}")

# %% [markdown]
# ## Exercise 4 · Copy on write
#
# **Outcome:** two sequences share a block until one of them writes · **Difficulty:** ●●○ ·
# **Time:** 12 min
#
# A fork shares all its blocks: the ids stand in both tables, and `users[block]` says how many
# tables name a block. Before a sequence writes into block number `index` of its table, the block
# must be its own.
#
# Write `make_own(table, index, users, free)`. If others use the block too, take a block from
# `free`, put it into the table in the old one's place, bring `users` up to date, and return the
# pair `(old, new)`, so that somebody can copy the contents. If nobody else uses it, there is
# nothing to do: return `None`. `users` is a list, one count for each block id.

# %% [markdown]
# <details><summary>Hint</summary>
#
# Four things change when a block is replaced: the free list, the table, and two counts. The old
# block is not free now: others still use it.
#
# </details>

# %% tags=["exercise"]
def make_own(table, index, users, free):
    """Give block `index` of the table one user; (old, new) if it was replaced, else None."""
    ### BEGIN SOLUTION
    old = table[index]
    if users[old] == 1:
        return None
    new = free.pop()
    table[index] = new
    users[old] -= 1
    users[new] = 1
    return old, new
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab04.make_own", make_own)

# %% [markdown]
# ## Exercise 5 · Find the double free
#
# **Outcome:** an audit that sees a broken pool before anybody's text is broken · **Difficulty:**
# ●●● · **Time:** 20 min
#
# `SharingAllocator` below has forks and copies on write. It has served for weeks. Then a customer
# reports that an answer held a sentence from somebody else's conversation. Do not look for the bug
# yet; write what would have found it.

# %%
class SharingAllocator:
    """Blocks that forks share; a shared one is replaced by one of the writer's own."""

    def __init__(self, n_blocks, C):
        self.C = C
        self.free = list(range(n_blocks))
        self.users = [0] * n_blocks
        self.tables, self.lengths = {}, {}
        self.inherited = {}  # what a sequence shared when it began

    def open(self, seq):
        self.tables[seq], self.lengths[seq], self.inherited[seq] = [], 0, []

    def fork(self, seq, new):
        """Sequence `new` begins as a copy of `seq`, in the same blocks."""
        self.tables[new], self.lengths[new] = list(self.tables[seq]), self.lengths[seq]
        self.inherited[new] = list(self.tables[seq])
        for block in self.tables[new]:
            self.users[block] += 1

    def take(self):
        block = self.free.pop()
        self.users[block] = 1
        return block

    def release(self, block):
        self.users[block] = max(0, self.users[block] - 1)
        if self.users[block] == 0 and block not in self.free:
            self.free.append(block)

    def grow(self, seq, tokens):
        """Blocks for that many more tokens; what will be written to is the sequence's own."""
        table, index = self.tables[seq], self.lengths[seq] // self.C
        if index < len(table) and self.users[table[index]] > 1:
            shared, table[index] = table[index], self.take()
            self.release(shared)
        self.lengths[seq] += tokens
        while len(table) * self.C < self.lengths[seq]:
            table.append(self.take())

    def close(self, seq):
        """Give back what it was given at birth and what it took itself."""
        taken = [block for block in self.tables[seq] if block not in self.inherited[seq]]
        for block in self.inherited[seq] + taken:
            self.release(block)
        del self.tables[seq], self.lengths[seq], self.inherited[seq]


def story(allocator, first_to_end):
    """A conversation, a fork that writes, an end, a stranger; yields after each act."""
    acts = [
        ("a begins with 6 tokens", lambda: (allocator.open("a"), allocator.grow("a", 6))),
        ("b forks off", lambda: allocator.fork("a", "b")),
        ("b writes 1 token", lambda: allocator.grow("b", 1)),
        (f"{first_to_end} ends", lambda: allocator.close(first_to_end)),
        ("c begins with 9 tokens", lambda: (allocator.open("c"), allocator.grow("c", 9))),
    ]
    for name, act in acts:
        act()
        yield name


for first in "ab":
    allocator = SharingAllocator(8, 4)
    for name in story(allocator, first):
        pass
    print(f"{first} ended first.", end="")
    for seq, table in allocator.tables.items():
        print(f"  {seq} has the blocks {', '.join(map(str, sorted(table)))}", end=".")
    print()

# %% [markdown]
# **Part one.** Write `audit(tables, users, free)`. `tables` maps sequences to their lists of block
# ids, `users[b]` is the count of block b, `free` the list of free ids. Return the ids of all blocks
# whose state is wrong, sorted. A block is right in two cases only:
#
# - nobody uses it: it stands in no table, its count is 0, and it stands in `free` exactly once;
# - it is used: it stands in as many tables as its count says, one or more, and not in `free`.

# %% [markdown]
# <details><summary>Hint</summary>
#
# Go through all block ids, 0 to len(users) − 1, not through what the tables name: a block that is
# nowhere at all is lost, and that is wrong too.
#
# </details>

# %% tags=["exercise"]
def audit(tables, users, free):
    """Ids of the blocks whose state is wrong, ascending."""
    ### BEGIN SOLUTION
    wrong = []
    for block in range(len(users)):
        named = sum(table.count(block) for table in tables.values())
        unused = named == users[block] == 0 and free.count(block) == 1
        used = named == users[block] >= 1 and block not in free
        if not (unused or used):
            wrong.append(block)
    return wrong
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab04.audit", audit)

# %% [markdown]
# With the audit after every act, the story tells where it goes wrong:

# %% tags=["measure"]
for first in "ab":
    allocator = SharingAllocator(8, 4)
    for name in story(allocator, first):
        wrong = audit(allocator.tables, allocator.users, allocator.free)
        print(f"{name:24} wrong blocks: {', '.join(map(str, wrong)) or 'none'}")
    print()

# %% [markdown]
# **Part two.** Only one of the two orders shows it. Then a block is free although `a` uses it, and
# `c`, a stranger, is given it: two conversations write into one block. Now look for the fault, and
# mend it: write `close` anew. Everything else of the class is right, if not pretty.

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which blocks does `inherited["b"]` name after `b` has written? Which of them does `b` still use?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `grow` has released the shared block already when it was replaced. Who releases it a second time?
#
# </details>

# %% tags=["exercise"]
class MendedAllocator(SharingAllocator):
    def close(self, seq):
        """Give back the blocks that the sequence uses now, each once."""
        ### BEGIN SOLUTION
        for used in self.tables.pop(seq):
            self.release(used)
        self.lengths.pop(seq)
        self.inherited.pop(seq)
        ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab04.mended_allocator", MendedAllocator)

# %% [markdown]
# A fuzz finds what a story does not think of. Two thousand random acts, the audit after each:

# %% tags=["measure"]
def fuzz(kind, acts=2000):
    """The first act after which a block is wrong, or None."""
    rng, allocator, count = random.Random(4), kind(64, 4), 0
    for act in range(acts):
        open_ones = list(allocator.tables)
        choice = rng.choice(("open", "fork", "grow", "grow", "grow", "close"))
        if choice == "open" and len(open_ones) < 5 or not open_ones:
            allocator.open(count)
            count += 1
        elif choice == "fork" and len(open_ones) < 5:
            allocator.fork(rng.choice(open_ones), count)
            count += 1
        elif choice == "grow" and len(allocator.free) > 4:
            allocator.grow(rng.choice(open_ones), rng.randint(1, 6))
        elif choice == "close":
            allocator.close(rng.choice(open_ones))
        if audit(allocator.tables, allocator.users, allocator.free):
            return act
    return None


for name, kind in (("as it was", SharingAllocator), ("mended", MendedAllocator)):
    act = fuzz(kind)
    print(f"{name:10} first wrong block:", "never" if act is None else f"after act {act}")

# %% [markdown] tags=["solution"]
# `inherited` remembers what was true at birth. When the shared block of `b` was replaced, `grow`
# released it; `close` released it again, from the memory of birth. While `a` is alive its count
# falls to 0, and the block goes to the next one who asks. If `a` ends first, the second release
# meets a count of 0 and does nothing, thanks to `max(0, …)` and `not in self.free`. Those two
# guards look careful. They turned a crash on the first day into a leak of other people's text after
# weeks. A count below zero is a fault to report, not a number to correct. The library's pool
# raises.

# %% [markdown]
# ## Challenge · The cheapest block size (optional)
#
# **Outcome:** a rule for C from lengths and prices · **Difficulty:** ●●○ · **Time:** 12 min
#
# A place costs `place_bytes`, used or not. An entry of a table costs `entry_bytes`. Write
# `best_block_size(lengths, sizes, place_bytes, entry_bytes)`: of the block sizes in `sizes`, the
# one for which sequences of these lengths cost least, places and tables together; the smaller one
# where two cost the same.

# %% [markdown]
# <details><summary>Hint</summary>
#
# For one sequence: its number of blocks, rounded up, times what one block costs with its entry.
#
# </details>

# %% tags=["exercise"]
def best_block_size(lengths, sizes, place_bytes, entry_bytes):
    """The block size that costs the fewest bytes for sequences of these lengths."""
    ### BEGIN SOLUTION
    def cost(C):
        blocks = sum(-(-n // C) for n in lengths)
        return blocks * (C * place_bytes + entry_bytes)

    return min(sorted(sizes), key=cost)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab04.best_block_size", best_block_size)

# %% tags=["measure"]
from kvedu.analysis.memory import kv_bytes_per_token

per_token = kv_bytes_per_token(model.config)
for entry_bytes in (4, 6_000, 1_000_000):
    C = best_block_size([41, 303, 1201], [2**i for i in range(9)], per_token, entry_bytes)
    print(f"an entry of {entry_bytes:9,} bytes, a place of {per_token:,}: blocks of {C}")

# %% [markdown] tags=["solution"]
# By bytes alone a block of 1 would win: an entry of 4 bytes is nothing beside a token's keys and
# values. What an entry *really* costs is time: it is looked up in every step, in every layer, and
# the memory behind it is read apart from its neighbors. Put that price in, and 16 is no surprise.
