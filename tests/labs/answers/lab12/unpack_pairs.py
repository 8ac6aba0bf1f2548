# %% right: a loop
def unpack_pairs(packed, n):
    out = torch.zeros(n, dtype=torch.uint8)
    for i in range(n):
        out[i] = (int(packed[i // 2]) >> (4 * (i % 2))) & 15
    return out


# %% right: division and remainder
def unpack_pairs(packed, n):
    out = torch.empty(2 * len(packed), dtype=torch.uint8)
    out[0::2] = packed % 16
    out[1::2] = packed // 16
    return out[:n]


# %% wrong: the filling too
# says: the filling of the last byte comes out as a code
def unpack_pairs(packed, n):
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten()


# %% wrong: low ones, then high ones
# says: they belong in turn
def unpack_pairs(packed, n):
    return torch.cat((packed & 15, packed >> 4))[:n]


# %% wrong: the high half first
# says: the first code is in the low one
def unpack_pairs(packed, n):
    return torch.stack((packed >> 4, packed & 15), dim=-1).flatten()[:n]


# %% wrong: not masked
# says: take its four bits only
def unpack_pairs(packed, n):
    return torch.stack((packed, packed >> 4), dim=-1).flatten()[:n]
