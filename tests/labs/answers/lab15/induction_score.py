# %% right: query by query
def induction_score(weights_HTS, P):
    found = [weights_HTS[:, t, t - P + 1] for t in range(P, 2 * P)]
    return torch.stack(found).mean(dim=0)


# %% right: a diagonal, without its first
def induction_score(weights_HTS, P):
    return weights_HTS.diagonal(offset=1 - P, dim1=1, dim2=2)[:, 1:].mean(dim=-1)


# %% right: the lower left quarter
def induction_score(weights_HTS, P):
    later = weights_HTS[:, P:, 1 : P + 1]
    return torch.einsum("hpp->h", later) / P


# %% wrong: the same token
# says: that is the same token one period earlier
def induction_score(weights_HTS, P):
    t = torch.arange(P, 2 * P)
    return weights_HTS[:, t, t - P].mean(dim=1)


# %% wrong: the one before
# says: that is the token *before* the last occurrence
def induction_score(weights_HTS, P):
    t = torch.arange(P, 2 * P)
    return weights_HTS[:, t, (t - P - 1).clamp(min=0)].mean(dim=1)


# %% wrong: all of the diagonal
# says: query P - 1 is in it
def induction_score(weights_HTS, P):
    return weights_HTS.diagonal(offset=1 - P, dim1=1, dim2=2).mean(dim=-1)


# %% wrong: the sum
# says: the weights are summed
def induction_score(weights_HTS, P):
    return sum(weights_HTS[:, t, t - P + 1] for t in range(P, 2 * P))


# %% wrong: all heads together
# says: one number for all heads comes out
def induction_score(weights_HTS, P):
    t = torch.arange(P, 2 * P)
    return weights_HTS[:, t, t - P + 1].mean()


# %% wrong: by all queries
# says: the result is not the right one
def induction_score(weights_HTS, P):
    t = torch.arange(P, 2 * P)
    return weights_HTS[:, t, t - P + 1].sum(dim=1) / (2 * P)
