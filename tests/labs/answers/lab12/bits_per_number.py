# %% right: bits of a whole group
def bits_per_number(bits, group, symmetric, scale_bits=16):
    total = group * bits + scale_bits
    if not symmetric:
        total += scale_bits
    return total / group


# %% right: in bytes first
def bits_per_number(bits, group, symmetric, scale_bits=16):
    extra_bytes = scale_bits / 8 * (2 - int(symmetric))
    return bits + 8 * extra_bytes / group


# %% wrong: codes alone
# says: scales and zero points are stored too
def bits_per_number(bits, group, symmetric, scale_bits=16):
    return float(bits)


# %% wrong: no zero point
# says: stores a zero point beside its scale
def bits_per_number(bits, group, symmetric, scale_bits=16):
    return bits + scale_bits / group


# %% wrong: a scale for every number
# says: pays its share of it only
def bits_per_number(bits, group, symmetric, scale_bits=16):
    return float(bits + (scale_bits if symmetric else 2 * scale_bits))


# %% wrong: always 16
# says: which are not always 16
def bits_per_number(bits, group, symmetric, scale_bits=16):
    return bits + (16 if symmetric else 32) / group
