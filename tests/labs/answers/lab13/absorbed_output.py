# %% right: head by head
def absorbed_output(weights_HS, c_SZ, up_HDZ):
    return torch.stack([up_HDZ[h] @ (weights_HS[h] @ c_SZ) for h in range(len(weights_HS))])


# %% right: with bmm
def absorbed_output(weights_HS, c_SZ, up_HDZ):
    mixed_HZ = torch.mm(weights_HS, c_SZ)
    return torch.bmm(up_HDZ, mixed_HZ[:, :, None]).squeeze(-1)


# %% wrong: values written out
# says: Absorb the projection
def absorbed_output(weights_HS, c_SZ, up_HDZ):
    v_SHD = torch.einsum("hdz,sz->shd", up_HDZ, c_SZ)
    return torch.einsum("hs,shd->hd", weights_HS, v_SHD)


# %% wrong: without weights
# says: every token counts the same
def absorbed_output(weights_HS, c_SZ, up_HDZ):
    return torch.einsum("z,hdz->hd", c_SZ.mean(dim=0), up_HDZ)


# %% wrong: the same weights
# says: all heads mix with the same weights
def absorbed_output(weights_HS, c_SZ, up_HDZ):
    mixed_Z = weights_HS.mean(dim=0) @ c_SZ
    return torch.einsum("z,hdz->hd", mixed_Z, up_HDZ)


# %% wrong: not brought up
# says: mixture of latents
def absorbed_output(weights_HS, c_SZ, up_HDZ):
    return weights_HS @ c_SZ


# %% wrong: one projection for all
# says: the first head's projection
def absorbed_output(weights_HS, c_SZ, up_HDZ):
    return weights_HS @ c_SZ @ up_HDZ[0].T
