# %% right: token by token
def first_stale(rounds):
    for i in range(len(rounds)):
        ids, held = rounds[i]
        if len(held) >= len(ids) or any(a != b for a, b in zip(held, ids)):
            return i
    return None


# %% right: against all but the last
def first_stale(rounds):
    found = [i for i, (ids, held) in enumerate(rounds) if held != ids[:-1][: len(held)] or len(held) > len(ids) - 1]
    return found[0] if found else None


# %% wrong: lengths
# says: lengths alone are compared
def first_stale(rounds):
    for i, (ids, held) in enumerate(rounds):
        if len(held) > len(ids) - 1:
            return i
    return None


# %% wrong: nothing left to run
# says: there are no logits to guess from
def first_stale(rounds):
    for i, (ids, held) in enumerate(rounds):
        if held != ids[: len(held)]:
            return i
    return None


# %% wrong: behind is not wrong
# says: a cache that holds less than the text is no fault
def first_stale(rounds):
    for i, (ids, held) in enumerate(rounds):
        if held != ids[:-1]:
            return i
    return None


# %% wrong: a set
# says: tokens are compared as a set
def first_stale(rounds):
    for i, (ids, held) in enumerate(rounds):
        if set(held) - set(ids) or len(held) >= len(ids):
            return i
    return None


# %% wrong: from one
# says: rounds are counted from 0
def first_stale(rounds):
    for i, (ids, held) in enumerate(rounds, start=1):
        if held != ids[: len(held)] or len(held) >= len(ids):
            return i
    return None


# %% wrong: the last
# says: the last stale round is returned
def first_stale(rounds):
    found = None
    for i, (ids, held) in enumerate(rounds):
        if held != ids[: len(held)] or len(held) >= len(ids):
            found = i
    return found


# %% wrong: minus one
# says: where all is well, None was wanted
def first_stale(rounds):
    for i, (ids, held) in enumerate(rounds):
        if held != ids[: len(held)] or len(held) >= len(ids):
            return i
    return -1
