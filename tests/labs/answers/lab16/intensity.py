# %% right: a loop over the new tokens
def intensity(T, S, H, K, D, size):
    flops = 0
    for t in range(T):
        flops += 4 * H * D * (S + t + 1)
    return flops / (2 * K * D * size * (T + S))

# %% right: by the group
def intensity(T, S, H, K, D, size):
    mean_keys = S + (T + 1) / 2
    return 2 * (H / K) * T * mean_keys / ((S + T) * size)

# %% wrong: a cache for every query head
# says: keys and values are counted per query head
def intensity(T, S, H, K, D, size):
    return 4 * D * H * (T * S + T * (T + 1) / 2) / (2 * (S + T) * H * D * size)

# %% wrong: keys alone
# says: attention reads both
def intensity(T, S, H, K, D, size):
    return 4 * D * H * (T * S + T * (T + 1) / 2) / ((S + T) * K * D * size)

# %% wrong: one FLOP for both
# says: a multiplication and an addition are two FLOPs
def intensity(T, S, H, K, D, size):
    return 2 * D * H * (T * S + T * (T + 1) / 2) / (2 * (S + T) * K * D * size)

# %% wrong: the whole rectangle
# says: the full rectangle of queries and keys
def intensity(T, S, H, K, D, size):
    return 4 * D * H * T * (S + T) / (2 * (S + T) * K * D * size)

# %% wrong: always two bytes
# says: the bytes of a number are taken to be 2
def intensity(T, S, H, K, D, size):
    return 4 * D * H * (T * S + T * (T + 1) / 2) / (4 * (S + T) * K * D)
