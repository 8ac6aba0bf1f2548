# %% right: write them one by one
def places(seen, sinks, window):
    lies = []
    for token in range(seen):
        if len(lies) < sinks + window:
            lies.append(token)
        else:
            lies[sinks + (token - sinks) % window] = token
    return [sorted(lies).index(token) for token in lies]


# %% right: around from the oldest
def places(seen, sinks, window):
    if seen <= sinks + window:
        return list(range(seen))
    oldest = (seen - sinks) % window
    ring = [(i - oldest) % window for i in range(window)]
    return list(range(sinks)) + [sinks + place for place in ring]


# %% wrong: in order
# says: slots are numbered as they lie
def places(seen, sinks, window):
    return list(range(min(seen, sinks + window)))


# %% wrong: the text's
# says: these are positions in the text
def places(seen, sinks, window):
    lies = {}
    for token in range(seen):
        lies[token if token < sinks else sinks + (token - sinks) % window] = token
    return [lies[slot] for slot in sorted(lies)]


# %% wrong: one ring
# says: the sinks go round with the others
def places(seen, sinks, window):
    size = sinks + window
    if seen <= size:
        return list(range(seen))
    return [(slot - seen % size) % size for slot in range(size)]


# %% wrong: off by one
# says: the slot that was written last is taken for the oldest
def places(seen, sinks, window):
    if seen <= sinks + window:
        return list(range(seen))
    last = (seen - 1 - sinks) % window
    return list(range(sinks)) + [sinks + (i - last) % window for i in range(window)]


# %% wrong: the window alone
# says: the sinks are missing
def places(seen, sinks, window):
    if seen <= sinks + window:
        return list(range(sinks, seen))
    oldest = (seen - sinks) % window
    return [sinks + (i - oldest) % window for i in range(window)]


# %% wrong: from 0
# says: the result is not the right one
def places(seen, sinks, window):
    if seen <= sinks + window:
        return list(range(seen))
    oldest = (seen - sinks) % window
    return list(range(sinks)) + [(i - oldest) % window for i in range(window)]
