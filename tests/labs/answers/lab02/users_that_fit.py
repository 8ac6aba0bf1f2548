# %% right: counted up
def users_that_fit(gpu_bytes, weights, token_bytes, tokens, reserve=0.1):
    free, each, users = gpu_bytes - gpu_bytes * reserve - weights, token_bytes * tokens, 0
    while (users + 1) * each <= free:
        users += 1
    return users


# %% right: with exact fractions
def users_that_fit(gpu_bytes, weights, token_bytes, tokens, reserve=0.1):
    from fractions import Fraction

    free = gpu_bytes * (1 - Fraction(str(reserve))) - weights
    return max(0, int(free / (token_bytes * tokens))) if free > 0 else 0


# %% wrong: rounded to the nearest
# says: rounded to the nearest
def users_that_fit(gpu_bytes, weights, token_bytes, tokens, reserve=0.1):
    return max(0, round((gpu_bytes * (1 - reserve) - weights) / (token_bytes * tokens)))


# %% wrong: rounded up
# says: users are rounded up
def users_that_fit(gpu_bytes, weights, token_bytes, tokens, reserve=0.1):
    return max(0, -int(-((gpu_bytes * (1 - reserve) - weights) / (token_bytes * tokens)) // 1))


# %% wrong: fewer than nobody
# says: fewer than nobody are served
def users_that_fit(gpu_bytes, weights, token_bytes, tokens, reserve=0.1):
    return int((gpu_bytes * (1 - reserve) - weights) // (token_bytes * tokens))


# %% wrong: no reserve
# says: the reserve is forgotten
def users_that_fit(gpu_bytes, weights, token_bytes, tokens, reserve=0.1):
    return max(0, (gpu_bytes - weights) // (token_bytes * tokens))


# %% wrong: a share of what is left
# says: a share of what the weights leave
def users_that_fit(gpu_bytes, weights, token_bytes, tokens, reserve=0.1):
    return max(0, int((gpu_bytes - weights) * (1 - reserve) // (token_bytes * tokens)))


# %% wrong: no weights
# says: the weights are forgotten
def users_that_fit(gpu_bytes, weights, token_bytes, tokens, reserve=0.1):
    return int(gpu_bytes * (1 - reserve) // (token_bytes * tokens))


# %% wrong: the reserve alone
# says: the reserve is what is used
def users_that_fit(gpu_bytes, weights, token_bytes, tokens, reserve=0.1):
    return max(0, int((gpu_bytes * reserve - weights) // (token_bytes * tokens)))


# %% wrong: a float
# says: divide with //
def users_that_fit(gpu_bytes, weights, token_bytes, tokens, reserve=0.1):
    return max(0.0, (gpu_bytes * (1 - reserve) - weights) // (token_bytes * tokens))
