# %% right: other pairs
def shows():
    return {"a": (12, 6), "b": None, "c": (12, 4)}


# %% right: small pairs
def shows():
    return dict(a=(6, 3), b=None, c=(4, 2))


# %% wrong: a is called right
# says: a passed your judgment and is wrong
def shows():
    return {"a": None, "b": None, "c": (9, 3)}


# %% wrong: c is called right
# says: c passed your judgment and is wrong
def shows():
    return {"a": (32, 8), "b": None, "c": None}


# %% wrong: b is called wrong
# says: b is right with 9 query heads
def shows():
    return {"a": (32, 8), "b": (9, 3), "c": (9, 3)}


# %% wrong: a pair that shows nothing
# says: a is right with 9 query heads
def shows():
    return {"a": (9, 3), "b": None, "c": (9, 3)}


# %% wrong: a pair that raises
# says: raises an IndexError
def shows():
    return {"a": (28, 4), "b": None, "c": (9, 3)}


# %% wrong: heads that do not divide
# says: of which K divides H
def shows():
    return {"a": (32, 5), "b": None, "c": (9, 3)}


# %% wrong: b left out
# says: keys a, b and c was wanted
def shows():
    return {"a": (32, 8), "c": (9, 3)}
