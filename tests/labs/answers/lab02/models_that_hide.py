# %% right: the lab's model for both
def models_that_hide():
    smol = dict(layers=1, width=576, heads=9, kv_heads=3, head_dim=64, tokens=4)
    return {"a": smol, "b": smol}


# %% right: one for each
def models_that_hide():
    own = dict(layers=1, width=64, heads=4, kv_heads=1, head_dim=32, tokens=4)
    return {"a": {**own, "head_dim": 16}, "b": {**own, "kv_heads": 2}}


# %% wrong: it does not hide a
# says: calculator a says
def models_that_hide():
    own = dict(layers=1, width=64, heads=4, kv_heads=1, head_dim=32, tokens=4)
    smol = dict(layers=1, width=576, heads=9, kv_heads=3, head_dim=64, tokens=4)
    return {"a": own, "b": smol}


# %% wrong: it does not hide b
# says: calculator b says
def models_that_hide():
    own = dict(layers=1, width=64, heads=4, kv_heads=1, head_dim=32, tokens=4)
    smol = dict(layers=1, width=576, heads=9, kv_heads=3, head_dim=64, tokens=4)
    return {"a": smol, "b": own}


# %% wrong: c as well
# says: no model hides c
def models_that_hide():
    smol = dict(layers=1, width=576, heads=9, kv_heads=3, head_dim=64, tokens=4)
    return {"a": smol, "b": smol, "c": smol}


# %% wrong: a list
# says: b: a model is a dict of six numbers
def models_that_hide():
    smol = dict(layers=1, width=576, heads=9, kv_heads=3, head_dim=64, tokens=4)
    return {"a": smol, "b": [1, 576, 9, 3, 64, 4]}


# %% wrong: heads that do not divide
# says: a: 9 query heads cannot share
def models_that_hide():
    smol = dict(layers=1, width=576, heads=9, kv_heads=3, head_dim=64, tokens=4)
    return {"a": {**smol, "kv_heads": 4}, "b": smol}


# %% wrong: a cache of gigabytes
# says: fewer layers or tokens
def models_that_hide():
    smol = dict(layers=1, width=576, heads=9, kv_heads=3, head_dim=64, tokens=4)
    return {"a": smol, "b": {**smol, "tokens": 10**13}}
