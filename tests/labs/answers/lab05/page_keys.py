# %% right: text keys, built up
def page_keys(ids, C, salt):
    keys, so_far = [], repr(salt)
    for i in range(len(ids) // C):
        so_far += "|" + ",".join(str(t) for t in ids[i * C : (i + 1) * C])
        keys.append(so_far)
    return keys


# %% right: a digest of bytes
def page_keys(ids, C, salt):
    import hashlib

    digest, keys = hashlib.sha256(repr(salt).encode()), []
    for position, token in enumerate(ids, 1):
        digest.update(token.to_bytes(4, "little"))
        if position % C == 0:
            keys.append(digest.hexdigest())
    return keys


# %% wrong: the page's own tokens
# says: from its own tokens alone
def page_keys(ids, C, salt):
    return [hash((salt, tuple(ids[i : i + C]))) for i in range(0, len(ids) - C + 1, C)]


# %% wrong: the page and its number
# says: has the page's place
def page_keys(ids, C, salt):
    return [hash((salt, n, tuple(ids[n * C : n * C + C]))) for n in range(len(ids) // C)]


# %% wrong: the page and the one before it
# says: chain the *key* of the page before
def page_keys(ids, C, salt):
    keys, before = [], ()
    for n in range(len(ids) // C):
        page = tuple(ids[n * C : n * C + C])
        keys.append(hash((salt, before, page)))
        before = page
    return keys


# %% wrong: no salt
# says: the salt is not in the keys
def page_keys(ids, C, salt):
    keys, key = [], 0
    for n in range(len(ids) // C):
        key = hash((key, *ids[n * C : n * C + C]))
        keys.append(key)
    return keys


# %% wrong: the last page need not be full
# says: a last page that is not full gets a key
def page_keys(ids, C, salt):
    keys, key = [], hash(salt)
    for i in range(0, len(ids), C):
        key = hash((key, tuple(ids[i : i + C])))
        keys.append(key)
    return keys


# %% wrong: a set of pages
# says: the order of the pages is not in the key
def page_keys(ids, C, salt):
    seen, keys = set(), []
    for n in range(len(ids) // C):
        seen.add(tuple(ids[n * C : n * C + C]))
        keys.append((salt, frozenset(seen)))
    return keys


# %% wrong: keys that cannot be looked up
# says: it has to be hashable
def page_keys(ids, C, salt):
    return [[salt, ids[: i + C]] for i in range(0, len(ids) - C + 1, C)]


# %% wrong: only the last key
# says: a list of keys was wanted
def page_keys(ids, C, salt):
    return hash((salt, tuple(ids[: len(ids) // C * C])))


# %% wrong: a page by its sum
# says: a sum or a set forgets the order
def page_keys(ids, C, salt=None):
    keys, key = [], hash(salt)
    for start in range(0, len(ids) - C + 1, C):
        key = hash((key, sum(ids[start : start + C])))
        keys.append(key)
    return keys
