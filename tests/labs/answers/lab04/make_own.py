# %% right: takes the first free block
def make_own(table, index, users, free):
    old = table[index]
    if users[old] > 1:
        new = free[0]
        del free[0]
        users[old], users[new] = users[old] - 1, users[new] + 1
        table[index] = new
        return (old, new)


# %% right: in another order
def make_own(table, index, users, free):
    pair = None
    if users[table[index]] >= 2:
        block = min(free)
        free.remove(block)
        pair = table[index], block
        users[block] = 1
        users[pair[0]] -= 1
        table[index] = block
    return pair


# %% wrong: copies always
# says: is copied though nobody else uses it
def make_own(table, index, users, free):
    old, new = table[index], free.pop()
    table[index] = new
    users[old] -= 1
    users[new] = 1
    return old, new


# %% wrong: never copies
# says: nothing is ever replaced
def make_own(table, index, users, free):
    return None


# %% wrong: the old count stays
# says: the old block has one user less now
def make_own(table, index, users, free):
    old = table[index]
    if users[old] == 1:
        return None
    table[index] = free.pop()
    users[table[index]] = 1
    return old, table[index]


# %% wrong: the new count stays 0
# says: and its count still says 0
def make_own(table, index, users, free):
    old = table[index]
    if users[old] == 1:
        return None
    table[index] = free.pop()
    users[old] -= 1
    return old, table[index]


# %% wrong: the new block stays free
# says: the new block still stands in the free list
def make_own(table, index, users, free):
    old = table[index]
    if users[old] == 1:
        return None
    new = free[-1]
    table[index] = new
    users[old] -= 1
    users[new] = 1
    return old, new


# %% wrong: the table is not changed
# says: the table still names the old block
def make_own(table, index, users, free):
    old = table[index]
    if users[old] == 1:
        return None
    new = free.pop()
    users[old] -= 1
    users[new] = 1
    return old, new


# %% wrong: frees the old block
# says: that is the double free
def make_own(table, index, users, free):
    old = table[index]
    if users[old] == 1:
        return None
    new = free.pop()
    table[index] = new
    users[old] -= 1
    users[new] = 1
    free.append(old)
    return old, new


# %% wrong: the pair reversed
# says: the pair is the wrong way round
def make_own(table, index, users, free):
    old = table[index]
    if users[old] == 1:
        return None
    new = free.pop()
    table[index] = new
    users[old] -= 1
    users[new] = 1
    return new, old
