# %% right: with slices from the end
def lookup(ids, k, longest):
    for n in range(min(longest, len(ids) - 1), 0, -1):
        tail = ids[-n:]
        for end in range(len(ids) - 1, n - 1, -1):
            if ids[end - n : end] == tail:
                return ids[end : end + k]
    return []


# %% right: an index of n-grams
def lookup(ids, k, longest):
    after = {}
    for end in range(1, len(ids)):
        for n in range(1, longest + 1):
            if end >= n:
                after[tuple(ids[end - n : end])] = end
    for n in range(longest, 0, -1):
        if n <= len(ids) and tuple(ids[-n:]) in after:
            at = after[tuple(ids[-n:])]
            return list(ids[at : at + k])
    return []


# %% wrong: finds its own end
# says: the text's last tokens are found at the text's own end
def lookup(ids, k, longest):
    for n in range(longest, 0, -1):
        if n > len(ids):
            continue
        for start in range(len(ids) - n, -1, -1):
            if ids[start : start + n] == ids[-n:]:
                return ids[start + n : start + n + k]
    return []


# %% wrong: the first place
# says: the first place is taken
def lookup(ids, k, longest):
    for n in range(longest, 0, -1):
        for start in range(len(ids) - n):
            if ids[start : start + n] == ids[-n:]:
                return ids[start + n : start + n + k]
    return []


# %% wrong: the shortest match
# says: short matches are tried first
def lookup(ids, k, longest):
    for n in range(1, longest + 1):
        for start in range(len(ids) - n - 1, -1, -1):
            if ids[start : start + n] == ids[-n:]:
                return ids[start + n : start + n + k]
    return []


# %% wrong: one length only
# says: try one token less, down to 1
def lookup(ids, k, longest):
    n = longest
    for start in range(len(ids) - n - 1, -1, -1):
        if ids[start : start + n] == ids[-n:]:
            return ids[start + n : start + n + k]
    return []


# %% wrong: what is there already
# says: the matched tokens themselves are proposed
def lookup(ids, k, longest):
    for n in range(longest, 0, -1):
        for start in range(len(ids) - n - 1, -1, -1):
            if ids[start : start + n] == ids[-n:]:
                return ids[start : start + k]
    return []


# %% wrong: one more
# says: one token too many is proposed
def lookup(ids, k, longest):
    for n in range(longest, 0, -1):
        for start in range(len(ids) - n - 1, -1, -1):
            if ids[start : start + n] == ids[-n:]:
                return ids[start + n : start + n + k + 1]
    return []
