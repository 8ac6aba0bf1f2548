# %% right: a plain sum
def my_score(held):
    return held.weights_QSK.sum(dim=0)


# %% right: small keys
def my_score(held):
    return -held.k_SKD.norm(dim=-1)


# %% wrong: one score for a token
# says: one score for each token and KV head was wanted
def my_score(held):
    return held.weights_QSK.sum(dim=(0, 2))


# %% wrong: recent again
# says: It is the one to beat
def my_score(held):
    return held.positions_SK.float()


# %% wrong: all alike
# says: all tokens have the same score
def my_score(held):
    return torch.ones_like(held.weights_QSK[0])


# %% wrong: not a number
# says: NaNs among the scores
def my_score(held):
    return (held.weights_QSK.sum(0) - 1e9).log()


# %% wrong: a list
# says: a tensor [S, K] was wanted
def my_score(held):
    return held.weights_QSK.sum(dim=0).tolist()
