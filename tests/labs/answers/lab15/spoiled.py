# %% right: where
def spoiled(x_SKD, head):
    this = torch.arange(x_SKD.shape[1]) == head
    return torch.where(this[:, None], x_SKD.mean(dim=0, keepdim=True), x_SKD)


# %% right: piece by piece
def spoiled(x_SKD, head):
    heads = list(x_SKD.unbind(dim=1))
    heads[head] = heads[head].mean(dim=0, keepdim=True).expand(len(x_SKD), -1)
    return torch.stack(heads, dim=1)


# %% wrong: all heads
# says: all heads are spoiled
def spoiled(x_SKD, head):
    return x_SKD.mean(dim=0).expand(x_SKD.shape).clone()


# %% wrong: zeros
# says: the rows are zero
def spoiled(x_SKD, head):
    out = x_SKD.clone()
    out[:, head] = 0
    return out


# %% wrong: over the dimensions
# says: the mean is taken over the D dimensions
def spoiled(x_SKD, head):
    out = x_SKD.clone()
    out[:, head] = out[:, head].mean(dim=-1, keepdim=True)
    return out


# %% wrong: over all heads
# says: the mean is taken over all heads too
def spoiled(x_SKD, head):
    out = x_SKD.clone()
    out[:, head] = x_SKD.flatten(0, 1).mean(dim=0)
    return out


# %% wrong: one number
# says: the mean is one number for all
def spoiled(x_SKD, head):
    out = x_SKD.clone()
    out[:, head] = out[:, head].mean()
    return out


# %% wrong: in the cache itself
# says: which belongs to the caller
def spoiled(x_SKD, head):
    x_SKD[:, head] = x_SKD[:, head].mean(dim=0)
    return x_SKD


# %% wrong: shuffled
# says: the result is not the right one
def spoiled(x_SKD, head):
    out = x_SKD.clone()
    out[:, head] = x_SKD[:, head].flip(0)
    return out
