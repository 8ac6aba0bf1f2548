# %% right: a loop over blocks
def slot_mapping(table, start, stop, C):
    places = []
    for i, block in enumerate(table):
        for offset in range(C):
            if start <= i * C + offset < stop:
                places.append(block * C + offset)
    return places


# %% right: with tensors
def slot_mapping(table, start, stop, C):
    t = torch.arange(start, stop)
    return (torch.tensor(table)[t // C] * C + t % C).tolist()


# %% wrong: a block id is a place
# says: begins at place b · C
def slot_mapping(table, start, stop, C):
    return [table[t // C] + t % C for t in range(start, stop)]


# %% wrong: no table
# says: the table is not used
def slot_mapping(table, start, stop, C):
    return list(range(start, stop))


# %% wrong: only the last block
# says: all tokens go to the last block
def slot_mapping(table, start, stop, C):
    first = table[-1] * C
    return [first + t % C for t in range(start, stop)]


# %% wrong: counts from 0
# says: counted from 0 again
def slot_mapping(table, start, stop, C):
    return [table[i // C] * C + i % C for i in range(stop - start)]


# %% wrong: the popular repair
# says: goes to the block before
def slot_mapping(table, start, stop, C):
    places = []
    for t in range(start, stop):
        index = (t + 1 + C - 1) // C - 1 if t % C else t // C - 1
        places.append(table[index] * C + t % C)
    return places
