# %% right: sorted once, searched
def rungs(ladder, running):
    from bisect import bisect_left

    order = sorted(ladder)
    taken = []
    for n in running:
        at = bisect_left(order, n)
        taken.append(order[at] if at < len(order) else None)
    rows = idle = 0
    for size, n in zip(taken, running):
        if size is not None:
            rows, idle = rows + size, idle + size - n
    return taken, idle / rows if rows else 0.0


# %% right: a loop
def rungs(ladder, running):
    taken = []
    for n in running:
        best = None
        for size in ladder:
            if size >= n and (best is None or size < best):
                best = size
        taken.append(best)
    rows = sum(size or 0 for size in taken)
    needed = sum(n for n, size in zip(running, taken) if size)
    return taken, 1 - needed / rows if rows else 0.0


# %% wrong: the next larger, always
# says: a step that fits a rung exactly takes the next larger one
def rungs(ladder, running):
    taken = [min((size for size in ladder if size > n), default=None) for n in running]
    pairs = [(size, n) for size, n in zip(taken, running) if size is not None]
    rows = sum(size for size, _ in pairs)
    return taken, sum(size - n for size, n in pairs) / rows if rows else 0.0


# %% wrong: the first that is large enough
# says: the first rung that is large enough is taken, not the smallest
def rungs(ladder, running):
    taken = [next((size for size in ladder if size >= n), None) for n in running]
    pairs = [(size, n) for size, n in zip(taken, running) if size is not None]
    rows = sum(size for size, _ in pairs)
    return taken, sum(size - n for size, n in pairs) / rows if rows else 0.0


# %% wrong: the largest will do
# says: a step is put into a recording that has no room for it
def rungs(ladder, running):
    taken = [min((size for size in ladder if size >= n), default=max(ladder)) for n in running]
    rows = sum(taken)
    return taken, sum(size - n for size, n in zip(taken, running)) / rows


# %% wrong: of the rows that are needed
# says: the share is of the rows that somebody needs
def rungs(ladder, running):
    taken = [min((size for size in ladder if size >= n), default=None) for n in running]
    pairs = [(size, n) for size, n in zip(taken, running) if size is not None]
    needed = sum(n for _, n in pairs)
    return taken, sum(size - n for size, n in pairs) / needed if needed else 0.0
