# %% right: two lists
def mended_dashboard(rows, now):
    here = [row for row in rows if row[0] <= now]
    waits = [first - arrived for arrived, first in here if first <= now] + [now - arrived for arrived, first in here if first > now]
    return percentile(waits, 99) if waits else 0.0


# %% right: with NumPy
def mended_dashboard(rows, now):
    import numpy as np

    arrived, first = np.array(rows, dtype=float).reshape(-1, 2).T
    waits = (np.minimum(first, now) - arrived)[arrived <= now]
    return float(np.percentile(waits, 99)) if waits.size else 0.0


# %% wrong: the old one
# says: it is the old dashboard
def mended_dashboard(rows, now):
    seen = [first - arrived for arrived, first in rows if first <= now]
    return percentile(seen, 99) if seen else 0.0


# %% wrong: knows the future
# says: first tokens that have not come yet
def mended_dashboard(rows, now):
    waits = [first - arrived for arrived, first in rows if arrived <= now]
    return percentile(waits, 99) if waits else 0.0


# %% wrong: users to come
# says: with a negative wait
def mended_dashboard(rows, now):
    waits = [min(first, now) - arrived for arrived, first in rows]
    return percentile(waits, 99) if waits else 0.0


# %% wrong: a wait of 0
# says: counted with a wait of 0
def mended_dashboard(rows, now):
    waits = [(first - arrived) * (first <= now) for arrived, first in rows if arrived <= now]
    return percentile(waits, 99) if waits else 0.0


# %% wrong: those who wait only
# says: only those who still wait
def mended_dashboard(rows, now):
    waits = [now - arrived for arrived, first in rows if arrived <= now < first]
    return percentile(waits, 99) if waits else 0.0
