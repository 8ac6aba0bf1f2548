# %% right: the prompt, then the steps
def rows_with(P, n):
    rows = P
    for _ in range(n - 1):
        rows += 1
    return rows


# %% right: all tokens but the last
def rows_with(P, n):
    return len([*range(P), *range(n)][:-1])


# %% wrong: the last token is run too
# says: one too many
def rows_with(P, n):
    return P + n


# %% wrong: no prompt
# says: it goes through once, in the first step
def rows_with(P, n):
    return n


# %% wrong: decode steps alone
# says: the decode steps alone
def rows_with(P, n):
    return n - 1


# %% wrong: without a cache
# says: the count without a cache
def rows_with(P, n):
    return sum(P + step for step in range(n))
