# %% right: a loop
def fair_attention(weights_QSK):
    Q, S, K = weights_QSK.shape
    rows = []
    for s in range(S):
        first = max(0, s - (S - Q))
        rows.append(weights_QSK[first:, s].mean(dim=0))
    return torch.stack(rows)


# %% right: by the mask
def fair_attention(weights_QSK):
    Q, S, K = weights_QSK.shape
    seen = (torch.arange(S) <= torch.arange(S - Q, S)[:, None]).to(weights_QSK.dtype)
    return weights_QSK.sum(0) / seen.sum(0)[:, None]


# %% wrong: the sum
# says: the sum favors old tokens
def fair_attention(weights_QSK):
    return weights_QSK.sum(dim=0)


# %% wrong: the mean
# says: divided by all queries
def fair_attention(weights_QSK):
    return weights_QSK.mean(dim=0)


# %% wrong: the last query
# says: only the last query is asked
def fair_attention(weights_QSK):
    return weights_QSK[-1]


# %% wrong: the maximum
# says: the largest weight is taken
def fair_attention(weights_QSK):
    return weights_QSK.max(dim=0).values


# %% wrong: counted from the first token
# says: as if there were one for each token
def fair_attention(weights_QSK):
    Q, S, K = weights_QSK.shape
    counts = torch.tensor([max(1, Q - s) for s in range(S)])
    return weights_QSK.sum(0) / counts[:, None]
