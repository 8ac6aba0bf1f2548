# %% right: counts blocks
def block_due(known, C):
    before = math.ceil((known - 1) / C)
    after = math.ceil(known / C)
    return after > before


# %% right: two remainders
def block_due(known, C):
    return known % C == 1 or C == 1


# %% wrong: the popular repair
# says: is taken for the number of cached tokens
def block_due(known, C):
    return known % C == 0


# %% wrong: a remainder of 1
# says: no remainder of a division by 1 is 1
def block_due(known, C):
    return known % C == 1


# %% wrong: the next token too
# says: it is written one step later
def block_due(known, C):
    cached_after = known + 1
    return cached_after % C == 0


# %% wrong: how many instead of whether
# says: True or False
def block_due(known, C):
    return int((known - 1) % C == 0)
