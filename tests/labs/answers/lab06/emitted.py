# %% right: both ways, summed token by token
def emitted(q_V, keep_V, rest_V):
    out_V = torch.zeros_like(q_V)
    for guess in range(len(q_V)):
        out_V[guess] += q_V[guess] * keep_V[guess]
        out_V += q_V[guess] * (1 - keep_V[guess]) * rest_V
    return out_V


# %% right: with a scalar product
def emitted(q_V, keep_V, rest_V):
    rejected = q_V @ (1 - keep_V)
    return torch.mul(q_V, keep_V) + rejected * rest_V


# %% wrong: the correction in full
# says: the correction counts in full
def emitted(q_V, keep_V, rest_V):
    return q_V * keep_V + rest_V


# %% wrong: each token's own rejection
# says: one number for all tokens
def emitted(q_V, keep_V, rest_V):
    return q_V * keep_V + (1 - keep_V) * rest_V


# %% wrong: only to itself
# says: any rejected guess may be corrected to any token
def emitted(q_V, keep_V, rest_V):
    return q_V * (keep_V + (1 - keep_V) * rest_V)


# %% wrong: keep alone
# says: the token must be guessed first
def emitted(q_V, keep_V, rest_V):
    return keep_V + (1 - keep_V.sum()) * rest_V


# %% wrong: one way only
# says: the second way is missing
def emitted(q_V, keep_V, rest_V):
    return q_V * keep_V


# %% wrong: guess again
# says: guesses again after a rejection
def emitted(q_V, keep_V, rest_V):
    kept_V = q_V * keep_V
    return kept_V / kept_V.sum()
