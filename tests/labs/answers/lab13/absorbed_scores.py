# %% right: head by head
def absorbed_scores(q_HD, up_HDZ, c_SZ):
    rows = []
    for h in range(len(q_HD)):
        q_Z = up_HDZ[h].T @ q_HD[h]
        rows.append(c_SZ @ q_Z)
    return torch.stack(rows) / math.sqrt(q_HD.shape[1])


# %% right: with bmm
def absorbed_scores(q_HD, up_HDZ, c_SZ):
    q_HZ = torch.bmm(q_HD[:, None] * q_HD.shape[1] ** -0.5, up_HDZ)[:, 0]
    return torch.matmul(q_HZ, c_SZ.transpose(0, 1))


# %% wrong: keys written out
# says: Absorb the projection
def absorbed_scores(q_HD, up_HDZ, c_SZ):
    k_SHD = torch.einsum("hdz,sz->shd", up_HDZ, c_SZ)
    return torch.einsum("hd,shd->hs", q_HD, k_SHD) / math.sqrt(q_HD.shape[1])


# %% wrong: no root
# says: not divided by the square root of D
def absorbed_scores(q_HD, up_HDZ, c_SZ):
    return torch.einsum("hd,hdz->hz", q_HD, up_HDZ) @ c_SZ.T


# %% wrong: the root of the latent's width
# says: it stays the root of D
def absorbed_scores(q_HD, up_HDZ, c_SZ):
    q_HZ = torch.einsum("hd,hdz->hz", q_HD, up_HDZ)
    return q_HZ @ c_SZ.T / math.sqrt(q_HZ.shape[1])


# %% wrong: the other way round
# says: [H, S] was wanted
def absorbed_scores(q_HD, up_HDZ, c_SZ):
    q_HZ = torch.einsum("hd,hdz->hz", q_HD, up_HDZ)
    return c_SZ @ q_HZ.T / math.sqrt(q_HD.shape[1])


# %% wrong: one projection for all
# says: the first head's projection
def absorbed_scores(q_HD, up_HDZ, c_SZ):
    return q_HD @ up_HDZ[0] @ c_SZ.T / math.sqrt(q_HD.shape[1])
