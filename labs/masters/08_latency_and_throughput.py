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
# # Lab 8 · Latency against throughput
#
# You will compute what users feel from the raw events of a run, check Little's law, tune a server
# for a first token within 500 ms, and find a bug in a dashboard that looks better the worse things
# get. Chapter 8 has the story.
#
# **TTFT** is the time to the first token, **ITL** the gap between one token and the next, **TPOT**
# the mean of an answer's gaps, **goodput** the requests per second that were served within their
# limits.

# %%
import math

import torch

import kvedu
from kvedu import texts
from kvedu.analysis.hardware import hardware
from kvedu.analysis.known_models import known_model
from kvedu.analysis.memory import kv_bytes_per_token
from kvedu.analysis.serving import server
from kvedu.engine.engine import Engine
from kvedu.engine.metrics import percentile, span_seconds, timings
from kvedu.engine.simulate import simulate
from kvedu.engine.step_time import blocks_beside_weights, roofline_seconds
from kvedu.engine.trace import Admitted, Arrived, Ended, Stepped
from kvedu.engine.workload import independent, lognormal, poisson, uniform

_ = torch.set_grad_enabled(False)

# %% [markdown]
# ## Warm-up: a run and its events
#
# Six prompts come at the same moment, and the engine has two slots for them. What happened stands
# in its trace: a list of events. `trace.of(Stepped)` gives those of one kind.

# %%
model = kvedu.load("smollm2-135m", dtype=torch.float32, device="cpu").pack()
ids = model.tokenizer.encode(texts.read("prose"))
cache_bytes = 512 * kv_bytes_per_token(model.config, 4)
engine = Engine(model, cache_bytes=cache_bytes, max_running=2, token_budget=16)
for i in range(6):
    engine.add(ids[20 * i : 20 * i + 20], max_new_tokens=4 + i, ignore_eos=True)
while not engine.idle:
    engine.step()

trace = engine.trace
for kind in (Arrived, Admitted, Stepped, Ended):
    print(f"{kind.__name__}: {len(trace.of(kind))}")

# %% [markdown]
# A step lists the *shares* of the sequences in it: how many `tokens` of a request were computed,
# after how many cached ones (`context`), and whether a token was `sampled` for it at the end. The
# step's `start` and `time` are when it began and ended.

# %%
for step in trace.of(Stepped)[:5]:
    print(f"step {step.step}:")
    for share in step.shares:
        counts = f"{share.tokens:2} computed, {share.context:2} cached before"
        print(f"   request {share.request}: {counts}, sampled: {'yes' if share.sampled else 'no'}")

# %% [markdown]
# ## Exercise 1 · What one user felt
#
# **Outcome:** TTFT, TPOT and the longest gap of a request, from the events · **Difficulty:** ●●○ ·
# **Time:** 15 min
#
# Write `latencies(trace, request)`. It returns three numbers in seconds: the time from the
# request's arrival to its first token, its mean time per token after the first, and its longest gap
# between two tokens. A token exists from the end of the step that sampled it. If there is only one
# token, the last two are `None`.
#
# Use `Arrived` and `Stepped` events, not `timings`, which would do it for you.

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Collect the times of the request's tokens first. Look at the steps above: does each share of a
# request bring a token?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# n tokens have n − 1 gaps between them.
#
# </details>

# %% tags=["exercise"]
def latencies(trace, request):
    """TTFT, TPOT and the longest gap of one request, in seconds."""
    ### BEGIN SOLUTION
    arrived = next(e.time for e in trace.of(Arrived) if e.request == request)
    tokens = [
        stepped.time
        for stepped in trace.of(Stepped)
        for share in stepped.shares
        if share.request == request and share.sampled
    ]
    gaps = [after - before for before, after in zip(tokens, tokens[1:])]
    if not gaps:
        return tokens[0] - arrived, None, None
    return tokens[0] - arrived, sum(gaps) / len(gaps), max(gaps)
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab08.latencies", latencies)

# %% [markdown]
# Your numbers for the run above, each as a multiple of the mean step:

# %% tags=["measure", "nbval-ignore-output"]
mean_step = sum(s.time - s.start for s in trace.of(Stepped)) / len(trace.of(Stepped))
for i in range(6):
    ttft, tpot, longest = (seconds / mean_step for seconds in latencies(trace, i))
    gaps = f"then one every {tpot:.1f}, the longest gap {longest:.1f}"
    print(f"request {i}: first token after {ttft:4.1f} steps, {gaps}")

# %% [markdown] tags=["solution"]
# Four of the six waited for a slot, and only TTFT shows it. The chunks of a prompt (20 tokens do
# not fit into a budget of 16) are shares without a token; whoever takes the first share for the
# first token reports too early a time.

# %% [markdown]
# ## Exercise 2 · Goodput
#
# **Outcome:** the rate that counts · **Difficulty:** ●○○ · **Time:** 10 min
#
# Write `goodput(times, span, ttft_limit, tpot_limit)`: requests per second that were complete and
# met both limits. `times` is a list as `timings(trace)` gives it. Each has `ttft_seconds`,
# `tpot_seconds` (`None` for an answer of one token) and `complete`, which is false for a request
# that was aborted. `span` is the length of the run in seconds. A limit is met by a value that
# equals it.

# %% [markdown]
# <details><summary>Hint</summary>
#
# An answer of a single token has no time per token that could be too long. An aborted request was
# served to nobody.
#
# </details>

# %% tags=["exercise"]
def goodput(times, span, ttft_limit, tpot_limit):
    """Requests per second that were complete and within both limits."""
    ### BEGIN SOLUTION
    good = 0
    for t in times:
        in_time = t.complete and t.ttft_seconds <= ttft_limit
        if in_time and (t.tpot_seconds is None or t.tpot_seconds <= tpot_limit):
            good += 1
    return good / span
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab08.goodput", goodput)

# %% [markdown]
# ## Exercise 3 · Little's law
#
# **Outcome:** the mean number of users inside, counted by the clock · **Difficulty:** ●●○ ·
# **Time:** 15 min
#
# Write `mean_inside(trace)`: the number of requests in the system, arrived and not yet ended,
# averaged *over time* from the first arrival to the last end. A recording may stop while some are
# still inside: they count too, up to its last end. Count heads as the clock runs; do not use
# anybody's latency. Then the law can be put to the test.

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Between two neighboring events nothing changes. How long is it between them, and how many are
# inside?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Sort the moments: +1 at each arrival, −1 at each end. Add up *number × time until the next
# moment*, and divide by the whole time.
#
# </details>

# %% tags=["exercise"]
def mean_inside(trace):
    """Mean number of requests in the system, over time."""
    ### BEGIN SOLUTION
    changes = [(Arrived, +1), (Ended, -1)]
    moments = sorted((event.time, change) for kind, change in changes for event in trace.of(kind))
    inside = area = 0
    for (now, change), (later, _) in zip(moments, moments[1:]):
        inside += change
        area += inside * (later - now)
    return area / (moments[-1][0] - moments[0][0])
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab08.mean_inside", mean_inside)

# %% [markdown]
# Little's law says that this equals arrivals per second times the mean time inside. On the run
# above:

# %% tags=["measure"]
times = timings(trace)
rate = len(times) / span_seconds(trace)
mean_stay = sum(t.latency_seconds for t in times) / len(times)
ratio = mean_inside(trace) / (rate * mean_stay)
print(f"the heads that you counted, divided by rate times mean stay: {ratio:.6f}")

# %% [markdown] tags=["solution"]
# It is no accident, and needs no more than that everybody has left when the clock stops. Both sides
# add up the same seconds that users spent inside: one moment by moment, the other user by user.
# Where the recording stops earlier, those who are still inside have no latency yet, and only the
# heads count them.

# %% [markdown]
# ## Exercise 4 · Tune for 500 ms
#
# **Outcome:** a setting that meets an SLO, predicted and found · **Difficulty:** ●●● ·
# **Time:** 20 min
#
# Llama-3-8B on an A100, simulated. 20 requests come each second. 99 of 100 shall have their first
# token within 500 ms and their later ones at 30 ms each. How many may run at a time? First the
# prediction. A `Server` knows
#
# - `step(B)`, seconds of a step with B sequences running, which is the TPOT of each;
# - `running_at(rate)`, the mean number that run when `rate` requests per second come, by Little's
#   law; infinite when no batch is enough.
#
# Write `room(server, rate, tpot_limit)`: the pair of the fewest and the most sequences that you
# must and may let run, as whole numbers. Fewest: not less than run on average, and at least 1.
# Most: the largest B whose step still meets the limit. If there is no number between, return
# `None`.

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# When must you round up? And what is `math.ceil(math.inf)`?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `step` never falls as B grows, so a loop from 1 upward finds the most. Mind the case where even
# one alone is too slow.
#
# </details>

# %% tags=["exercise"]
def room(server, rate, tpot_limit):
    """(fewest, most) sequences to let run, or None if there is no such number."""
    ### BEGIN SOLUTION
    mean = server.running_at(rate)
    most = 0
    while server.step(most + 1) <= tpot_limit:
        most += 1
    if mean > most:
        return None
    return max(1, math.ceil(mean)), most
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab08.room", room)

# %% [markdown]
# Means are not enough: arrivals bunch, and an SLO speaks of the slowest. So the simulator decides.
# Write `smallest_ceiling(measure, ceilings, ttft_limit, tpot_limit)`. `measure(ceiling)` runs the
# server with at most so many sequences and returns its 99th percentiles of TTFT and TPOT in
# seconds. Return the smallest of the `ceilings` (a list in no particular order) that meets both
# limits, or `None`. A measurement takes seconds: never measure a ceiling twice, and none that
# cannot be the answer any more.

# %% [markdown]
# <details><summary>Hint</summary>
#
# Neither a low nor a high ceiling need meet the SLO: too low, and the line grows; too high, and
# each token takes too long. So do not stop at the first that fails.
#
# </details>

# %% tags=["exercise"]
def smallest_ceiling(measure, ceilings, ttft_limit, tpot_limit):
    """The smallest ceiling that meets both limits, or None."""
    ### BEGIN SOLUTION
    for ceiling in sorted(ceilings):
        ttft, tpot = measure(ceiling)
        if ttft <= ttft_limit and tpot <= tpot_limit:
            return ceiling
    return None
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab08.smallest_ceiling", smallest_ceiling)

# %% [markdown]
# Your two functions on the simulated A100:

# %%
llama, a100 = known_model("Llama-3-8B").config, hardware("A100-80GB-SXM")
step_seconds, n_blocks = roofline_seconds(llama, a100), blocks_beside_weights(llama, a100)

# %% tags=["measure"]
RATE, TTFT, TPOT = 20, 0.5, 0.030
chip = server(llama, a100, prompt=500, output=150)
for rate in (RATE, 30):
    found = room(chip, rate, TPOT)
    said = "none will do" if found is None else "{} to {}".format(*found)
    print(f"closed form, sequences at {rate} requests a second: {said}")

requests = independent(
    poisson(250, RATE, seed=5), lognormal(500, 0.8, 4000), lognormal(150, 0.6, 450), seed=6
)


def simulated(ceiling):
    """99th percentiles of TTFT and TPOT in seconds."""
    run = timings(
        simulate(requests, step_seconds, n_blocks=n_blocks, max_running=ceiling, token_budget=256)
    )
    ttft = percentile([t.ttft_seconds for t in run], 99)
    tpot = percentile([t.tpot_seconds for t in run if t.tpot_seconds], 99)
    print(f"at most {ceiling:3}: TTFT {1e3 * ttft:6,.0f} ms, TPOT {1e3 * tpot:.1f} ms")
    return ttft, tpot


print("smallest that meets both:", smallest_ceiling(simulated, [64, 16, 128, 32], TTFT, TPOT))

# %% [markdown] tags=["solution"]
# The lowest ceiling has the best TPOT and the worst TTFT. The mean that Little's law gives is a
# lower bound: with just so many slots, every bunch of arrivals makes a line.

# %% [markdown]
# ## Exercise 5 · The dashboard that looked fine
#
# **Outcome:** a metric that lies, shown and mended · **Difficulty:** ●●● · **Time:** 15 min
#
# During an outage, users complain that nothing comes. The dashboard is green. This is what it
# computes, every few seconds, from the pairs (arrived, first token) of all requests, as far as they
# are known at the time `now`:

# %%
def dashboard(rows, now):
    """99th percentile of TTFT in seconds, as it stands at the time `now`."""
    seen = [first_token - arrived for arrived, first_token in rows if first_token <= now]
    return percentile(seen, 99)


# %% [markdown]
# First show it. Write `outage()`, which returns `rows` and `now`: at least ten users who have
# arrived by `now`, of whom at least half have been waiting for more than 10 seconds, while
# `dashboard(rows, now)` says less than 0.5. Rows may hold times after `now`: they have not happened
# yet. Every first token comes after its arrival.

# %% [markdown]
# <details><summary>Hint</summary>
#
# Who is not in `seen`?
#
# </details>

# %% tags=["exercise"]
def outage():
    """(rows, now) on which the dashboard is green and half of the users wait in vain."""
    ### BEGIN SOLUTION
    served = [(float(second), second + 0.2) for second in range(10)]
    stuck = [(float(second), 100.0) for second in range(10, 20)]
    return served + stuck, 40.0
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab08.outage", outage)

# %% [markdown]
# Now mend it. `mended_dashboard(rows, now)` counts everybody who has arrived by `now`. Who is still
# waiting has waited `now - arrived` so far: their TTFT will be at least that. Mind what is not
# known yet at `now`. If nobody has arrived, return 0.0.

# %% tags=["exercise"]
def mended_dashboard(rows, now):
    """99th percentile in seconds of TTFT, or of the wait so far, of all who have arrived."""
    ### BEGIN SOLUTION
    waits = [min(first_token, now) - arrived for arrived, first_token in rows if arrived <= now]
    return percentile(waits, 99) if waits else 0.0
    ### END SOLUTION


# %% tags=["check"]
kvedu.check("lab08.mended_dashboard", mended_dashboard)

# %% [markdown]
# Both dashboards on a server whose 16 slots are taken by users with long answers:

# %% tags=["measure"]
flood = independent(poisson(100, 20, seed=5), uniform(100, 300), uniform(600, 900), seed=6)
run = timings(simulate(flood, step_seconds, n_blocks=n_blocks, max_running=16, token_budget=256))
rows = [(t.arrived_seconds, t.arrived_seconds + t.ttft_seconds) for t in run]
for now in (1.0, 3.0, 5.0):
    old, mended = dashboard(rows, now), mended_dashboard(rows, now)
    print(f"after {now:.0f} s: the dashboard says {old:.2f} s, the mended one {mended:.2f} s")

# %% [markdown] tags=["solution"]
# A metric that is written down when something *completes* cannot see what does not. The same bug
# has many faces: latencies from a log of finished requests, timeouts that are left out of a mean, a
# benchmark that drops its last requests. Ask of every number on a dashboard who is not in it.
