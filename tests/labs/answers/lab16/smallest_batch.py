# %% right: solved for B
def smallest_batch(weights, cache, flops, peak, bandwidth):
    import math

    per_sequence = flops / peak - cache / bandwidth
    return None if per_sequence <= 0 else math.ceil(weights / bandwidth / per_sequence - 1e-9)

# %% right: doubling and halving
def smallest_batch(weights, cache, flops, peak, bandwidth):
    def reached(B):
        return B * flops / peak >= (weights + B * cache) / bandwidth * (1 - 1e-12)

    high = 1
    while not reached(high):
        high *= 2
        if high > 2**50:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high

# %% wrong: no caches
# says: only the weights are shared
def smallest_batch(weights, cache, flops, peak, bandwidth):
    import math

    return math.ceil(weights / bandwidth / (flops / peak) - 1e-9)

# %% wrong: one cache
# says: the cache of one sequence is counted
def smallest_batch(weights, cache, flops, peak, bandwidth):
    import math

    return math.ceil((weights + cache) / bandwidth / (flops / peak) - 1e-9)

# %% wrong: a negative batch
# says: the answer is None
def smallest_batch(weights, cache, flops, peak, bandwidth):
    import math

    return math.ceil(weights / bandwidth / (flops / peak - cache / bandwidth) - 1e-9)

# %% wrong: rounded down
# says: one too few
def smallest_batch(weights, cache, flops, peak, bandwidth):
    import math

    per_sequence = flops / peak - cache / bandwidth
    return None if per_sequence <= 0 else math.floor(weights / bandwidth / per_sequence)
