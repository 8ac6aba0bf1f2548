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
# # Lab 7 · Continuous batching
#
# You will count what static batches waste, derive the factor from nothing but lengths, write the
# step of a scheduler and let it serve the real model, and mend a server that lets the first to come
# end last. Chapter 7 has the story.
#
# A *slot* is a place in the batch. A step gives one token to everybody who decodes. A sequence that
# wants n tokens takes n steps, since the step that computes its prompt gives the first one.

# %%
from collections import deque
from dataclasses import dataclass

import torch

import kvedu
from kvedu import ConcatCache
from kvedu.analysis.batching import continuous_steps_between
from kvedu.model.loops import greedy_cached

torch.set_grad_enabled(False)
model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu").pack()
config, tokenizer = model.config, model.tokenizer
BEGINNINGS = (
    "The capital of France is",
    "Water boils at",
    "The opposite of cold is",
    "My favorite color is",
    "Two plus two is",
    "A haiku is",
)
WANTED = (4, 2, 10, 3, 6, 5)
prompts = [tokenizer.encode(text) for text in BEGINNINGS]
print("prompt tokens:", *map(len, prompts))
print("tokens wanted:", *WANTED)

# %% [markdown]
# ## Exercise 1 · What static batches waste
#
# **Outcome:** steps and empty places of static batching, for any line · **Difficulty:** ●○○ ·
# **Time:** 10 min
#
# People stand in a line; number i wants `lengths[i]` tokens. A static server takes the first
# `slots` of them, runs until the last of these has ended, takes the next `slots`, and so on. Each
# step has `slots` places, taken or not. Write `wasted_slots(lengths, slots)`: the pair (steps,
# places that gave no token).

# %% [markdown]
# <details><summary>Hint</summary>
#
# `lengths[i : i + slots]` is a batch. The last one may be smaller; its empty slots are there all
# the same. You need not go through the places one by one: how many are there, and how many gave a
# token?
#
# </details>

# %% tags=["exercise"]
def wasted_slots(lengths, slots):
    """(steps, wasted places) of static batches, in the order of the line."""
    ### BEGIN SOLUTION
    steps = sum(max(lengths[i : i + slots]) for i in range(0, len(lengths), slots))
    return steps, steps * slots - sum(lengths)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab07.wasted_slots", wasted_slots)

# %% tags=["measure"]
steps, wasted = wasted_slots([4, 2, 10, 3], 4)
print(f"the four of chapter 7: {steps} steps, {wasted} of {steps * 4} places wasted")

# %% [markdown]
# ## Exercise 2 · The factor, from lengths alone
#
# **Outcome:** how many times as many steps static batching takes, without a run · **Difficulty:**
# ●●○ · **Time:** 15 min
#
# Now the line never ends, and the lengths of the people in it are drawn at random from a list: each
# entry is equally likely, every time anew. A static batch of `slots` sequences lasts as long as the
# longest of its draws. A continuous server wastes no slot, so the same tokens take it, on average,
# as many steps as a sequence has tokens. Write `steps_ratio(lengths, slots)`: the mean of the
# longest of `slots` draws, over the mean length. It is to be exact, so do not roll dice.

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Sort the n lengths. With which chance are *all* draws among the i smallest? Then the longest is at
# most number i.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The chance that the longest is number i exactly is that for i less that for i − 1. Multiply by the
# length, add up.
#
# </details>

# %% tags=["exercise"]
def steps_ratio(lengths, slots):
    """Mean of the longest of `slots` independent draws, over the mean length."""
    ### BEGIN SOLUTION
    ordered, n = sorted(lengths), len(lengths)
    longest = sum(x * ((i / n) ** slots - ((i - 1) / n) ** slots) for i, x in enumerate(ordered, 1))
    return longest / (sum(lengths) / n)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab07.steps_ratio", steps_ratio)

# %% tags=["measure"]
lines = {
    "all alike": [50] * 100,
    "uniform": list(range(1, 100)),
    "nine short, one long": [10] * 90 + [410] * 10,
}
print(f"{'slots':27}" + "".join(f"{B:7}" for B in (4, 16, 64)))
for name, lengths in lines.items():
    ratios = "".join(f"{steps_ratio(lengths, B):7.2f}" for B in (4, 16, 64))
    print(f"{name:20} mean {sum(lengths) / len(lengths):.0f}{ratios}")

# %% [markdown]
# ## Exercise 3 · The scheduler's step
#
# **Outcome:** decode first, prompts in chunks, newcomers into free slots, all within a budget ·
# **Difficulty:** ●●○ · **Time:** 20 min
#
# Before each step the server asks: who runs, and how many tokens of each? You get
#
# - `running`: pairs (name, pending) in the order in which they came. `pending` tokens are left to
#   compute before the next token can be sampled: 1 for somebody who decodes, more for a prompt
#   under way;
# - `waiting`: the same for those who stand in the line;
# - `slots`: how many may run at once, those in `running` included;
# - `budget`: how many tokens the step may compute, all together.
#
# Return a dict name → tokens. The rules, in this order: everybody who decodes gets 1; prompts under
# way get what is left of the budget; the first in the line come in while slots and budget last. A
# prompt may get a part of its tokens. Nobody is planned with 0. Within each group the earlier goes
# first.

# %% [markdown]
# <details><summary>Hint</summary>
#
# Three passes over one budget. What each pass does with one person is the same:
# `min(pending, budget)`.
#
# </details>

# %% tags=["exercise"]
def plan_step(running, waiting, slots, budget):
    """{name: tokens} of the next step."""
    ### BEGIN SOLUTION
    decodes = [person for person in running if person[1] == 1]
    prompts_under_way = [person for person in running if person[1] > 1]
    newcomers = waiting[: max(0, slots - len(running))]
    plan, left = {}, budget
    for name, pending in decodes + prompts_under_way + newcomers:
        if left:
            plan[name] = min(pending, left)
            left -= plan[name]
    return plan
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab07.plan_step", plan_step)

# %% [markdown]
# Your scheduler now serves the real model. `serve` below asks it before each step, computes what it
# planned in one ragged pass, and samples a token for everybody whose pending tokens are all
# computed. Every text must be the one that the person gets alone.

# %% tags=["measure"]
def serve(prompts, wanted, slots, budget):
    """Greedy answers, and the plan of each step."""
    cache, seqs, plans = ConcatCache(config, device=model.device), {}, []
    line, texts = deque(range(len(prompts))), [list(ids) for ids in prompts]
    computed = [0] * len(prompts)
    while line or seqs:
        running = [(i, len(texts[i]) - computed[i]) for i in seqs]
        plan = plan_step(running, [(i, len(texts[i])) for i in line], slots, budget)
        for i in [i for i in plan if i not in seqs]:
            line.remove(i)
            seqs[i] = cache.add()
        plans.append(plan)
        new = {seqs[i]: texts[i][computed[i] : computed[i] + n] for i, n in plan.items()}
        with cache.step({seq: len(ids) for seq, ids in new.items()}) as view:
            logits_BV = model(torch.tensor(sum(new.values(), [])), view, view.last_rows)
        for (i, n), token in zip(plan.items(), logits_BV.argmax(-1).tolist()):
            computed[i] += n
            if computed[i] == len(texts[i]):
                texts[i].append(token)
                if len(texts[i]) == len(prompts[i]) + wanted[i]:
                    cache.free(seqs.pop(i))
    return [text[len(ids) :] for text, ids in zip(texts, prompts)], plans


answers, plans = serve(prompts, WANTED, slots=3, budget=6)
alone = [
    greedy_cached(model, ids, n, ConcatCache(config, device=model.device))
    for ids, n in zip(prompts, WANTED)
]
equal = sum(a == b for a, b in zip(answers, alone))
print(f"{equal} of {len(alone)} answers equal to what each gets alone")
print(f"{len(plans)} steps, at most {max(sum(plan.values()) for plan in plans)} tokens in one")
fewest, most = continuous_steps_between(WANTED, 3)
print("with whole prompts: static batches of 3 take", wasted_slots(WANTED, 3)[0], "steps,")
print(f"continuous batching in 3 slots {fewest} to {most}, whatever the order")
for i, plan in enumerate(plans[:6]):
    print(f"step {i}:", ", ".join(f"{n} for number {who}" for who, n in plan.items()))

# %% [markdown]
# ## Exercise 4 · Who is sent back
#
# **Outcome:** a line that shows starvation by preemption, and a server without it · **Difficulty:**
# ●●● · **Time:** 25 min
#
# Here is a server on plain numbers. Each token takes a *place* in the cache, and there are only so
# many. If a step needs more than are left, somebody is sent back to the line and loses all places;
# what it has computed must be computed again (the tokens that it has made are kept and count as
# part of its text). All its tests pass: every job ends, with the right number of tokens. Users
# complain all the same.

# %%
@dataclass
class Job:
    """A request; `number` says who came first."""

    number: int
    prompt: int
    new: int
    computed: int = 0  # tokens that hold a place
    made: int = 0  # tokens sampled

    @property
    def pending(self):
        """Tokens to compute before the next one is sampled."""
        return self.prompt + self.made - self.computed


class Server:
    """Steps of jobs on a pool of places."""

    def __init__(self, places, budget):
        self.places, self.budget, self.came = places, budget, 0
        self.running, self.waiting = [], []

    def add(self, prompt, new):
        self.waiting.append(Job(self.came, prompt, new))
        self.came += 1

    def victim(self):
        """Who gives way: the one who has been served longest."""
        return self.running[0]

    def send_back(self, job):
        """Its places are gone; it stands in the line again."""
        job.computed = 0
        self.waiting.append(job)

    def step(self):
        """One step: {number: tokens computed}."""
        work, budget, sent_back = {}, self.budget, False

        def held():
            return sum(job.computed for job in self.running) + sum(work.values())

        for job in sorted(self.running, key=lambda job: job.pending > 1):
            tokens = min(job.pending, budget)
            while job in self.running and held() + tokens > self.places:
                victim = self.victim()
                self.running.remove(victim)
                budget += work.pop(victim.number, 0)
                self.send_back(victim)
                sent_back = True
            if job in self.running and tokens:
                work[job.number] = tokens
                budget -= tokens
        while self.waiting and not sent_back and budget:
            if held() + self.waiting[0].pending > self.places:
                break
            job = self.waiting.pop(0)
            self.running.append(job)
            work[job.number] = min(job.pending, budget)
            budget -= work[job.number]
        for job in list(self.running):
            job.computed += work.get(job.number, 0)
            if job.pending == 0:
                job.made += 1
                if job.made == job.new:
                    self.running.remove(job)
        return work


def order_of_ends(server, line):
    """Serve (prompt, new) pairs that come at once: who ended when, and all tokens computed."""
    for prompt, new in line:
        server.add(prompt, new)
    ended, computed = [], 0
    while server.running or server.waiting:
        before = [job.number for job in server.running + server.waiting]
        computed += sum(server.step().values())
        after = [job.number for job in server.running + server.waiting]
        ended += sorted(set(before) - set(after))
    return ended, computed


ended, computed = order_of_ends(Server(200, 16), [(4, 6)] * 5)
print("with room for all the jobs end in the order", *ended, f"and compute {computed} tokens")

# %% [markdown]
# **Part one.** Write `unfair_line()`: at most 12 pairs (prompt tokens, new tokens) which, on
# `Server(places=32, budget=16)`, let the *first* end after everybody else. To be a fair accusation,
# the first must be no longer than any other, in new tokens and in all, and each job must fit alone.

# %% [markdown]
# <details><summary>Hint</summary>
#
# Where everybody fits, nobody is sent back. Let several alike come in with short prompts, and grow.
# `order_of_ends(Server(32, 16), line)` is there for you to try.
#
# </details>

# %% tags=["exercise"]
def unfair_line():
    """A line in which the first ends last on Server(32, 16)."""
    ### BEGIN SOLUTION
    return [(4, 12)] * 6
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab07.unfair_line", unfair_line)

# %% tags=["measure"]
print("jobs end in the order", *order_of_ends(Server(32, 16), unfair_line())[0])

# %% [markdown]
# **Part two.** Two methods are at fault, and mending one is not enough. Write `MendedServer` with
# its own `victim` and `send_back`, so that the first to come can count on ending, and nobody who
# came earlier is overtaken in the line, even if newcomers never stop.

# %% [markdown]
# <details><summary>Hint</summary>
#
# Order people by `number`. If only those with a larger number can be made to give way for somebody,
# who can never be sent back? And where must somebody who was sent back stand, so that a newcomer
# does not take the places it needs?
#
# </details>

# %% tags=["exercise"]
class MendedServer(Server):
    """A server that lets nobody starve."""

    def victim(self):
        """Who gives way."""
        ### BEGIN SOLUTION
        return max(self.running, key=lambda job: job.number)
        ### END SOLUTION

    def send_back(self, job):
        """Its places are gone; it stands in the line again."""
        job.computed = 0
        ### BEGIN SOLUTION
        self.waiting.insert(0, job)
        ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab07.mended_server", MendedServer)

# %% tags=["measure"]
for kind in (Server, MendedServer):
    ended, computed = order_of_ends(kind(32, 16), unfair_line())
    print(f"{kind.__name__:13} {computed} tokens computed; jobs end in the order", *ended)

# %% [markdown] tags=["solution"]
# The one who has been served longest holds most, so that sending it back frees most: it sounds
# reasonable, and it also throws the most work away. That is why the first server computes more
# tokens. The rule that saves everybody is dull: *the last to come gives way, and keeps its place in
# front of those who came later.* Then the first is never sent back, so it ends; then there is a new
# first. That is the bound which the docstring of `kvedu.engine.scheduler.Scheduler` states.

# %% [markdown]
# ## Challenge · A budget that keeps a promise (optional)
#
# **Outcome:** the largest token budget under a limit, and what a newcomer pays · **Difficulty:**
# ●●○ · **Time:** 15 min
#
# On your machine a step takes `fixed + each * tokens` microseconds. `decodes` people are being
# answered; you have promised that none of them waits longer than `limit` microseconds for a token.
# A newcomer arrives with a long prompt. Write `budget_for(prompt, decodes, fixed, each, limit)`:
# the largest budget that keeps the promise, the steps until the newcomer's first token, and how
# many microseconds these take. Nobody ends meanwhile. All numbers are whole; the budget is always
# larger than `decodes`.

# %% [markdown]
# <details><summary>Hint</summary>
#
# Those who decode take one token each of every step's budget. In the last step the newcomer has
# less left than it could get.
#
# </details>

# %% tags=["exercise"]
def budget_for(prompt, decodes, fixed, each, limit):
    """(budget, steps, microseconds) for a newcomer's prompt."""
    ### BEGIN SOLUTION
    budget = (limit - fixed) // each
    steps = -(-prompt // (budget - decodes))
    return budget, steps, steps * fixed + each * (prompt + steps * decodes)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab07.budget_for", budget_for)

# %% tags=["measure"]
for limit in (12_000, 20_000, 60_000, 400_000):
    budget, count, micros = budget_for(2000, 8, 9_000, 150, limit)
    promise = f"a wait of {limit / 1000:3.0f} ms at most: {budget:5,} tokens a step"
    print(f"{promise}, the first one after {micros / 1000:5,.0f} ms (steps: {count})")

# %% [markdown] tags=["solution"]
# A promise to those who are being answered is paid by the newcomer: each step costs its fixed part,
# and the tighter the limit, the more steps a prompt needs. Past some budget nothing is gained,
# since the prompt's own tokens take the time.
