# %% right: head by head, written in place
def merge_kv_heads(qkv_OM, H, K, D):
    new = torch.zeros((H + 2) * D, qkv_OM.shape[1])
    new[: H * D] = qkv_OM[: H * D]
    for side in range(2):
        for head in range(K):
            first = (H + side * K + head) * D
            new[(H + side) * D : (H + side + 1) * D] += qkv_OM[first : first + D] / K
    return new


# %% right: one mean for both sides, in double precision
def merge_kv_heads(qkv_OM, H, K, D):
    kv = qkv_OM[H * D :].double().unflatten(0, (2, K, D)).mean(dim=1).flatten(0, 1)
    return torch.cat((qkv_OM[: H * D], kv.float()))


# %% wrong: neighboring rows
# says: the mean is taken of neighboring rows
def merge_kv_heads(qkv_OM, H, K, D):
    q, k, v = qkv_OM.split([H * D, K * D, K * D])
    return torch.cat([q, *[x.view(D, K, -1).mean(dim=1) for x in (k, v)]])


# %% wrong: the sum
# says: the heads are summed
def merge_kv_heads(qkv_OM, H, K, D):
    q, k, v = qkv_OM.split([H * D, K * D, K * D])
    return torch.cat([q, *[sum(x.split(D)) for x in (k, v)]])


# %% wrong: the first head
# says: the first head is kept
def merge_kv_heads(qkv_OM, H, K, D):
    q, k, v = qkv_OM.split([H * D, K * D, K * D])
    return torch.cat([q, k[:D], v[:D]])


# %% wrong: values before keys
# says: queries, keys, values is the order
def merge_kv_heads(qkv_OM, H, K, D):
    q, k, v = qkv_OM.split([H * D, K * D, K * D])
    return torch.cat([q, *[x.view(K, D, -1).mean(dim=0) for x in (v, k)]])


# %% wrong: as many heads as before
# says: the merged head is written K times
def merge_kv_heads(qkv_OM, H, K, D):
    q, k, v = qkv_OM.split([H * D, K * D, K * D])
    return torch.cat([q, *[x.view(K, D, -1).mean(dim=0).repeat(K, 1) for x in (k, v)]])


# %% wrong: nothing done
# says: nothing is merged
def merge_kv_heads(qkv_OM, H, K, D):
    return qkv_OM.clone()


# %% wrong: queries changed
# says: the result is not the right one
def merge_kv_heads(qkv_OM, H, K, D):
    q, k, v = qkv_OM.split([H * D, K * D, K * D])
    return torch.cat([q * 1.01, *[x.view(K, D, -1).mean(dim=0) for x in (k, v)]])


# %% wrong: the given matrix overwritten
# says: changes its argument number 1
def merge_kv_heads(qkv_OM, H, K, D):
    qkv_OM[H * D : (H + 1) * D] = qkv_OM[H * D : (H + K) * D].view(K, D, -1).mean(dim=0)
    qkv_OM[(H + 1) * D : (H + 2) * D] = qkv_OM[(H + K) * D :].view(K, D, -1).mean(dim=0)
    return qkv_OM[: (H + 2) * D]
