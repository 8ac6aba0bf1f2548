# %% right: a sum over positions
def pairs_with(P, n):
    return sum(position + 1 for position in range(P + n - 1))


# %% right: counted on a mask
def pairs_with(P, n):
    run = P + n - 1
    return int(torch.ones(run, run).tril().sum())


# %% wrong: the full square
# says: the full square
def pairs_with(P, n):
    return (P + n - 1) ** 2


# %% wrong: not itself
# says: do not see themselves
def pairs_with(P, n):
    return sum(range(P + n - 1))


# %% wrong: the last token too
# says: one token too many
def pairs_with(P, n):
    return sum(range(P + n + 1))


# %% wrong: decode steps only
# says: the pairs of the prompt itself
def pairs_with(P, n):
    return sum(P + step for step in range(1, n))
