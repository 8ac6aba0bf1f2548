# %% right: a sum over layers and heads
def bytes_per_token(config, bytes_per_element):
    return sum(config.D * bytes_per_element for _ in range(config.L) for _ in range(config.K) for _ in ("key", "value"))


# %% right: by the long names, elements first
def bytes_per_token(config, bytes_per_element):
    elements = 2 * config.n_layers * (config.n_heads // config.G) * config.head_dim
    return elements * bytes_per_element


# %% right: counted on tensors of another type
def bytes_per_token(config, bytes_per_element):
    return int(torch.empty(config.L, 2, config.K, config.D, dtype=torch.int8).nbytes) * bytes_per_element


# %% wrong: keys alone
# says: a key *and* a value
def bytes_per_token(config, bytes_per_element):
    return config.L * config.K * config.D * bytes_per_element


# %% wrong: one layer
# says: one layer's share
def bytes_per_token(config, bytes_per_element):
    return 2 * config.K * config.D * bytes_per_element


# %% wrong: query heads
# says: query heads are counted
def bytes_per_token(config, bytes_per_element):
    return 2 * config.L * config.H * config.D * bytes_per_element


# %% wrong: C035, the head size as a quotient
# says: taken for width / heads
def bytes_per_token(config, bytes_per_element):
    return 2 * config.L * config.K * (config.M // config.H) * bytes_per_element


# %% wrong: C033, groups for KV heads
# says: G heads are counted
def bytes_per_token(config, bytes_per_element):
    return 2 * config.L * (config.H // config.K) * config.D * bytes_per_element


# %% wrong: the width
# says: the whole width is counted
def bytes_per_token(config, bytes_per_element):
    return 2 * config.L * config.M * bytes_per_element


# %% wrong: always two bytes
# says: two bytes are taken for every element
def bytes_per_token(config, bytes_per_element):
    return 2 * config.L * config.K * config.D * 2


# %% wrong: elements
# says: elements are counted, not bytes
def bytes_per_token(config, bytes_per_element):
    return 2 * config.L * config.K * config.D


# %% wrong: a float
# says: divide with //
def bytes_per_token(config, bytes_per_element):
    return 2 * config.L * config.K * config.D * bytes_per_element / 1


# %% wrong: printed, not returned
# says: is there a return
def bytes_per_token(config, bytes_per_element):
    print(2 * config.L * config.K * config.D * bytes_per_element)


# %% wrong: a slip that nobody foresaw
# says: the result is not the right one
def bytes_per_token(config, bytes_per_element):
    return 2 * config.L * config.K * config.D * bytes_per_element + 16
