# %% right: four that nearly fit
def unfair_line():
    return [(3, 20)] * 3


# %% right: the first is the shortest
def unfair_line():
    return [(3, 18), (3, 20), (4, 20)]


# %% wrong: everybody fits
# says: job 0 is not the last
def unfair_line():
    return [(2, 3)] * 4


# %% wrong: a long one first
# says: that it ends late proves nothing
def unfair_line():
    return [(4, 28), (2, 2), (2, 2)]


# %% wrong: too long to run
# says: cannot run even alone
def unfair_line():
    return [(20, 20)] * 3


# %% wrong: alone
# says: the first is alone
def unfair_line():
    return [(4, 10)]


# %% wrong: no pairs
# says: a list of pairs
def unfair_line():
    return [4, 10, 10]


# %% wrong: a crowd
# says: at most 12 jobs
def unfair_line():
    return [(4, 10)] * 40
