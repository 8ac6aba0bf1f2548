# %% right: in bits
def page_bytes(C, K, D, bits, group, symmetric):
    of_a_group = group * bits + 16 + (0 if symmetric else 16)
    return C * K * (D // group) * of_a_group // 8


# %% right: codes, then scales
def page_bytes(C, K, D, bits, group, symmetric):
    codes = C * K * D * bits // 8
    scales = 2 * C * K * D // group
    return codes + scales * (2 - symmetric)


# %% wrong: codes alone
# says: scales are stored, too
def page_bytes(C, K, D, bits, group, symmetric):
    return C * K * D * bits // 8


# %% wrong: no zero points
# says: a zero point beside its scale
def page_bytes(C, K, D, bits, group, symmetric):
    return C * K * (D * bits // 8 + 2 * (D // group))


# %% wrong: a byte each
# says: fewer than 8 bits share a byte
def page_bytes(C, K, D, bits, group, symmetric):
    return C * K * (D + (2 if symmetric else 4) * (D // group))


# %% wrong: one scale a head
# says: each has its own scale
def page_bytes(C, K, D, bits, group, symmetric):
    return C * K * (D * bits // 8 + (2 if symmetric else 4))


# %% wrong: one head
# says: a token has K heads
def page_bytes(C, K, D, bits, group, symmetric):
    return C * (D * bits // 8 + (2 if symmetric else 4) * (D // group))
