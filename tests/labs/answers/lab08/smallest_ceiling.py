# %% right: with next
def smallest_ceiling(measure, ceilings, ttft_limit, tpot_limit):
    def meets(ceiling):
        ttft, tpot = measure(ceiling)
        return ttft <= ttft_limit and tpot <= tpot_limit

    return next((ceiling for ceiling in sorted(ceilings) if meets(ceiling)), None)


# %% right: the smallest taken out each time
def smallest_ceiling(measure, ceilings, ttft_limit, tpot_limit):
    left = set(ceilings)
    while left:
        ceiling = min(left)
        left.discard(ceiling)
        found = measure(ceiling)
        if not (found[0] > ttft_limit or found[1] > tpot_limit):
            return ceiling


# %% wrong: the largest
# says: not the smallest
def smallest_ceiling(measure, ceilings, ttft_limit, tpot_limit):
    for ceiling in sorted(ceilings, reverse=True):
        ttft, tpot = measure(ceiling)
        if ttft <= ttft_limit and tpot <= tpot_limit:
            return ceiling
    return None


# %% wrong: as they come
# says: in no particular order
def smallest_ceiling(measure, ceilings, ttft_limit, tpot_limit):
    for ceiling in ceilings:
        ttft, tpot = measure(ceiling)
        if ttft <= ttft_limit and tpot <= tpot_limit:
            return ceiling
    return None


# %% wrong: TTFT only
# says: only TTFT is looked at
def smallest_ceiling(measure, ceilings, ttft_limit, tpot_limit):
    return next((c for c in sorted(ceilings) if measure(c)[0] <= ttft_limit), None)


# %% wrong: TPOT only
# says: only TPOT is looked at
def smallest_ceiling(measure, ceilings, ttft_limit, tpot_limit):
    return next((c for c in sorted(ceilings) if measure(c)[1] <= tpot_limit), None)


# %% wrong: below the limits
# says: equals its limit is counted as a miss
def smallest_ceiling(measure, ceilings, ttft_limit, tpot_limit):
    for ceiling in sorted(ceilings):
        ttft, tpot = measure(ceiling)
        if ttft < ttft_limit and tpot < tpot_limit:
            return ceiling
    return None


# %% wrong: gives up
# says: stops at the first ceiling that fails
def smallest_ceiling(measure, ceilings, ttft_limit, tpot_limit):
    for ceiling in sorted(ceilings):
        ttft, tpot = measure(ceiling)
        if ttft <= ttft_limit and tpot <= tpot_limit:
            return ceiling
        break
    return None


# %% wrong: all are measured
# says: were measured to find
def smallest_ceiling(measure, ceilings, ttft_limit, tpot_limit):
    found = {c: measure(c) for c in ceilings}
    good = [c for c, (ttft, tpot) in found.items() if ttft <= ttft_limit and tpot <= tpot_limit]
    return min(good) if good else None


# %% wrong: measured twice
# says: measured more than once
def smallest_ceiling(measure, ceilings, ttft_limit, tpot_limit):
    for ceiling in sorted(ceilings):
        if measure(ceiling)[0] <= ttft_limit and measure(ceiling)[1] <= tpot_limit:
            return ceiling
    return None
