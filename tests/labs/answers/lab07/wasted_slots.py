# %% right: place by place
def wasted_slots(lengths, slots):
    steps = empty = 0
    line = list(lengths)
    while line:
        batch, line = line[:slots], line[slots:]
        for step in range(max(batch)):
            steps += 1
            empty += slots - sum(1 for n in batch if n > step)
    return steps, empty


# %% right: recursion
def wasted_slots(lengths, slots):
    if not lengths:
        return 0, 0
    longest = max(lengths[:slots])
    steps, empty = wasted_slots(lengths[slots:], slots)
    return steps + longest, empty + longest * slots - sum(lengths[:slots])


# %% wrong: only those in the batch
# says: leaves whole slots empty
def wasted_slots(lengths, slots):
    steps = wasted = 0
    for i in range(0, len(lengths), slots):
        batch = lengths[i : i + slots]
        steps += max(batch)
        wasted += sum(max(batch) - n for n in batch)
    return steps, wasted


# %% wrong: one batch
# says: taken for a single one
def wasted_slots(lengths, slots):
    return max(lengths), max(lengths) * slots - sum(lengths)


# %% wrong: sorted
# says: the lengths are sorted first
def wasted_slots(lengths, slots):
    lengths = sorted(lengths)
    steps = sum(max(lengths[i : i + slots]) for i in range(0, len(lengths), slots))
    return steps, steps * slots - sum(lengths)


# %% wrong: the mean
# says: not as its mean
def wasted_slots(lengths, slots):
    steps = 0
    for i in range(0, len(lengths), slots):
        batch = lengths[i : i + slots]
        steps += sum(batch) // len(batch)
    return steps, steps * slots - sum(lengths)


# %% wrong: the other way round
# says: steps come first
def wasted_slots(lengths, slots):
    steps = sum(max(lengths[i : i + slots]) for i in range(0, len(lengths), slots))
    return steps * slots - sum(lengths), steps


# %% wrong: something else
# says: the result is not the right one
def wasted_slots(lengths, slots):
    return len(lengths), 0
