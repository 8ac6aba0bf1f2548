# %% right: a sequence at a time
def decode_bytes(lengths, H, K, D, size):
    total = 0
    for S in lengths:
        total += S * K * D + S * K * D + H * D + H * D
    return total * size


# %% right: in one expression
def decode_bytes(lengths, H, K, D, size):
    return 2 * D * size * (K * sum(lengths) + H * len(lengths))


# %% wrong: query heads have keys
# says: query heads of a group share them
def decode_bytes(lengths, H, K, D, size):
    return (2 * sum(lengths) * H * D + 2 * len(lengths) * H * D) * size


# %% wrong: keys alone
# says: two numbers for each place
def decode_bytes(lengths, H, K, D, size):
    return (sum(lengths) * K * D + 2 * len(lengths) * H * D) * size


# %% wrong: the cache alone
# says: the results are written, too
def decode_bytes(lengths, H, K, D, size):
    return 2 * sum(lengths) * K * D * size


# %% wrong: what is read
# says: one of the two is missing
def decode_bytes(lengths, H, K, D, size):
    return (2 * sum(lengths) * K * D + len(lengths) * H * D) * size


# %% wrong: elements
# says: numbers are counted, not bytes
def decode_bytes(lengths, H, K, D, size):
    return 2 * sum(lengths) * K * D + 2 * len(lengths) * H * D
