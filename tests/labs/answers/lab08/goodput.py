# %% right: a sum
def goodput(times, span, ttft_limit, tpot_limit):
    return sum(1 for t in times if t.complete and t.ttft_seconds <= ttft_limit and (t.tpot_seconds or 0) <= tpot_limit) / span


# %% right: the bad ones taken away
def goodput(times, span, ttft_limit, tpot_limit):
    bad = [t for t in times if not t.complete or t.ttft_seconds > ttft_limit or (t.tpot_seconds is not None and t.tpot_seconds > tpot_limit)]
    return (len(times) - len(bad)) / span


# %% wrong: a share
# says: not a rate: divide by seconds
def goodput(times, span, ttft_limit, tpot_limit):
    return sum(t.complete and t.ttft_seconds <= ttft_limit and (t.tpot_seconds or 0) <= tpot_limit for t in times) / len(times)


# %% wrong: one limit is enough
# says: one limit met is enough
def goodput(times, span, ttft_limit, tpot_limit):
    return sum(t.complete and (t.ttft_seconds <= ttft_limit or (t.tpot_seconds or 0) <= tpot_limit) for t in times) / span


# %% wrong: TTFT only
# says: only TTFT is looked at
def goodput(times, span, ttft_limit, tpot_limit):
    return sum(t.complete and t.ttft_seconds <= ttft_limit for t in times) / span


# %% wrong: aborted ones too
# says: aborted requests count as served
def goodput(times, span, ttft_limit, tpot_limit):
    return sum(t.ttft_seconds <= ttft_limit and (t.tpot_seconds or 0) <= tpot_limit for t in times) / span


# %% wrong: no single tokens
# says: answers of one token are left out
def goodput(times, span, ttft_limit, tpot_limit):
    return sum(t.complete and t.ttft_seconds <= ttft_limit and bool(t.tpot_seconds) and t.tpot_seconds <= tpot_limit for t in times) / span


# %% wrong: below the limits
# says: equals its limit is counted as a miss
def goodput(times, span, ttft_limit, tpot_limit):
    return sum(t.complete and t.ttft_seconds < ttft_limit and (t.tpot_seconds or 0) < tpot_limit for t in times) / span


# %% wrong: throughput
# says: the late ones must not count
def goodput(times, span, ttft_limit, tpot_limit):
    return len([t for t in times if t.complete]) / span


# %% wrong: compares None
# says: NoneType
def goodput(times, span, ttft_limit, tpot_limit):
    return sum(t.complete and t.ttft_seconds <= ttft_limit and t.tpot_seconds <= tpot_limit for t in times) / span
