# %% right: a loop
def pack_pairs(codes_n):
    packed = torch.zeros((len(codes_n) + 1) // 2, dtype=torch.uint8)
    for i, code in enumerate(codes_n.tolist()):
        packed[i // 2] += code << (4 * (i % 2))
    return packed


# %% right: a table of two columns
def pack_pairs(codes_n):
    wide = torch.zeros(-(-len(codes_n) // 2) * 2, dtype=torch.int64)
    wide[: len(codes_n)] = codes_n
    pairs = wide.view(-1, 2)
    return (pairs @ torch.tensor([1, 16])).to(torch.uint8)


# %% wrong: the first code high
# says: it belongs in the low one
def pack_pairs(codes_n):
    codes = torch.cat((codes_n, codes_n.new_zeros(len(codes_n) % 2)))
    return (codes[0::2] << 4) | codes[1::2]


# %% wrong: halves beside each other
# says: neighbors share a byte
def pack_pairs(codes_n):
    codes = torch.cat((codes_n, codes_n.new_zeros(len(codes_n) % 2)))
    n = len(codes) // 2
    return codes[:n] | (codes[n:] << 4)


# %% wrong: the last one is lost
# says: with an odd number of codes the last one is lost
def pack_pairs(codes_n):
    even = codes_n[: len(codes_n) // 2 * 2]
    return even[0::2] | (even[1::2] << 4)


# %% wrong: nothing is packed
# says: half of which is always zero
def pack_pairs(codes_n):
    return codes_n.clone()


# %% wrong: decimal
# says: half a byte counts to 16
def pack_pairs(codes_n):
    codes = torch.cat((codes_n, codes_n.new_zeros(len(codes_n) % 2)))
    return codes[0::2] + 10 * codes[1::2]
