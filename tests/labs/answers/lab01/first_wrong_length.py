# %% right: stacked and compared at once
def first_wrong_length(make_cache, limit):
    caches = make_cache(), ConcatCache(tiny)
    seqs = [cache.add() for cache in caches]
    for length in range(limit):
        k, v = random_token()
        ours, theirs = (torch.stack(append_token(cache, seq, k, v)) for cache, seq in zip(caches, seqs))
        if not torch.allclose(ours, theirs):
            return length + 1


# %% right: a while loop, the largest gap
def first_wrong_length(make_cache, limit):
    a, b = make_cache(), ConcatCache(tiny)
    i, j, length = a.add(), b.add(), 0
    while length < limit:
        length += 1
        token = random_token()
        pairs = zip(append_token(a, i, *token), append_token(b, j, *token))
        if max(float((x - y).abs().max()) for x, y in pairs) > 0:
            return length
    return None


# %% wrong: other tokens for each cache
# says: do both caches get the same tokens
def first_wrong_length(make_cache, limit):
    a, b = make_cache(), ConcatCache(tiny)
    i, j = a.add(), b.add()
    for length in range(1, limit + 1):
        pairs = zip(append_token(a, i, *random_token()), append_token(b, j, *random_token()))
        if not all(torch.equal(x, y) for x, y in pairs):
            return length


# %% wrong: keys alone
# says: only keys are compared
def first_wrong_length(make_cache, limit):
    a, b = make_cache(), ConcatCache(tiny)
    i, j = a.add(), b.add()
    for length in range(1, limit + 1):
        token = random_token()
        ours, theirs = append_token(a, i, *token), append_token(b, j, *token)
        if not all(torch.equal(x, y) for x, y in zip(ours[::2], theirs[::2])):
            return length


# %% wrong: values alone
# says: only values are compared
def first_wrong_length(make_cache, limit):
    a, b = make_cache(), ConcatCache(tiny)
    i, j = a.add(), b.add()
    for length in range(1, limit + 1):
        token = random_token()
        ours, theirs = append_token(a, i, *token), append_token(b, j, *token)
        if not all(torch.equal(x, y) for x, y in zip(ours[1::2], theirs[1::2])):
            return length


# %% wrong: the first layer alone
# says: only the first layer is compared
def first_wrong_length(make_cache, limit):
    a, b = make_cache(), ConcatCache(tiny)
    i, j = a.add(), b.add()
    for length in range(1, limit + 1):
        token = random_token()
        ours, theirs = append_token(a, i, *token), append_token(b, j, *token)
        if not all(torch.equal(x, y) for x, y in zip(ours[:2], theirs[:2])):
            return length


# %% wrong: counts from 0
# says: it counts indices, not lengths
def first_wrong_length(make_cache, limit):
    a, b = make_cache(), ConcatCache(tiny)
    i, j = a.add(), b.add()
    for index in range(limit):
        token = random_token()
        pairs = zip(append_token(a, i, *token), append_token(b, j, *token))
        if not all(torch.equal(x, y) for x, y in pairs):
            return index


# %% wrong: stops before the limit
# says: one token before the limit
def first_wrong_length(make_cache, limit):
    a, b = make_cache(), ConcatCache(tiny)
    i, j = a.add(), b.add()
    for length in range(1, limit):
        token = random_token()
        pairs = zip(append_token(a, i, *token), append_token(b, j, *token))
        if not all(torch.equal(x, y) for x, y in pairs):
            return length


# %% wrong: goes on until something is wrong
# says: goes on past the limit
def first_wrong_length(make_cache, limit):
    a, b = make_cache(), ConcatCache(tiny)
    i, j = a.add(), b.add()
    for length in range(1, limit + 100):
        token = random_token()
        pairs = zip(append_token(a, i, *token), append_token(b, j, *token))
        if not all(torch.equal(x, y) for x, y in pairs):
            return length
