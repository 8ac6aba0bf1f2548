# %% right: another pair
def hides():
    return {"a": (16, 4), "c": None}


# %% right: the smallest
def hides():
    return dict(c=None, a=(4, 2))


# %% wrong: nothing hides a
# says: a is right on some pair
def hides():
    return {"a": None, "c": None}


# %% wrong: MQA
# says: is MHA or MQA
def hides():
    return {"a": (9, 3), "c": (8, 1)}


# %% wrong: a pair that does not hide a
# says: a is wrong with 32 query heads
def hides():
    return {"a": (32, 8), "c": None}


# %% wrong: a pair that does not hide c
# says: c is wrong with 9 query heads
def hides():
    return {"a": (9, 3), "c": (9, 3)}


# %% wrong: c left out
# says: one key for each of the two wrong versions
def hides():
    return {"a": (9, 3)}


# %% wrong: not a pair
# says: a: a pair (H, K) was wanted
def hides():
    return {"a": 9, "c": None}
