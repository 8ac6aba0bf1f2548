# %% right: pairs
def serving_order(requests):
    return [i for _, i in sorted((tuple(ids), i) for i, ids in enumerate(requests))]


# %% right: the other way round
def serving_order(requests):
    return sorted(range(len(requests)), key=lambda i: requests[i], reverse=True)


# %% wrong: as they came
# says: in which they came
def serving_order(requests):
    return list(range(len(requests)))


# %% wrong: short ones first
# says: the order of the lengths says nothing
def serving_order(requests):
    return sorted(range(len(requests)), key=lambda i: len(requests[i]))


# %% wrong: by the first token
# says: those with the same first token stand together
def serving_order(requests):
    return sorted(range(len(requests)), key=lambda i: requests[i][0])


# %% wrong: one left out
# says: every request is served once
def serving_order(requests):
    return sorted(range(len(requests)), key=lambda i: requests[i])[1:] or [1]


# %% wrong: the requests themselves
# says: a list of request numbers was wanted
def serving_order(requests):
    return sorted(requests)
