# %% right: one model of one's own
def models_that_show():
    own = dict(layers=1, width=64, heads=4, kv_heads=1, head_dim=32, tokens=4)
    return {"a": own, "b": own, "c": own}


# %% right: changed copies
def models_that_show():
    own = dict(layers=1, width=64, heads=4, kv_heads=1, head_dim=32, tokens=4)
    smol = dict(layers=1, width=576, heads=9, kv_heads=3, head_dim=64, tokens=4)
    return {"a": {**smol, "head_dim": 32}, "b": {**smol, "kv_heads": 1}, "c": smol}


# %% wrong: the lab's model shows nothing of a
# says: calculator a is right on this model
def models_that_show():
    own = dict(layers=1, width=64, heads=4, kv_heads=1, head_dim=32, tokens=4)
    smol = dict(layers=1, width=576, heads=9, kv_heads=3, head_dim=64, tokens=4)
    return {"a": smol, "b": own, "c": own}


# %% wrong: the lab's model shows nothing of b
# says: calculator b is right on this model
def models_that_show():
    own = dict(layers=1, width=64, heads=4, kv_heads=1, head_dim=32, tokens=4)
    smol = dict(layers=1, width=576, heads=9, kv_heads=3, head_dim=64, tokens=4)
    return {"a": own, "b": smol, "c": own}


# %% wrong: one is missing
# says: keys a, b, c was wanted
def models_that_show():
    own = dict(layers=1, width=64, heads=4, kv_heads=1, head_dim=32, tokens=4)
    return {"a": own, "b": own}


# %% wrong: a number is missing
# says: c: a model is a dict of six numbers
def models_that_show():
    own = dict(layers=1, width=64, heads=4, kv_heads=1, head_dim=32, tokens=4)
    return {"a": own, "b": own, "c": {"layers": 2}}


# %% wrong: no tokens
# says: a: all six are whole numbers above 0
def models_that_show():
    own = dict(layers=1, width=64, heads=4, kv_heads=1, head_dim=32, tokens=4)
    return {"a": {**own, "tokens": 0}, "b": own, "c": own}


# %% wrong: heads that do not divide
# says: cannot share 3 KV heads evenly
def models_that_show():
    own = dict(layers=1, width=64, heads=4, kv_heads=1, head_dim=32, tokens=4)
    return {"a": {**own, "kv_heads": 3}, "b": own, "c": own}


# %% wrong: an odd head size
# says: a head size is even
def models_that_show():
    own = dict(layers=1, width=64, heads=4, kv_heads=1, head_dim=32, tokens=4)
    return {"a": {**own, "head_dim": 33}, "b": own, "c": own}


# %% wrong: a cache of gigabytes
# says: fewer layers or tokens
def models_that_show():
    own = dict(layers=1, width=64, heads=4, kv_heads=1, head_dim=32, tokens=4)
    return {"a": {**own, "tokens": 10**13}, "b": own, "c": own}
