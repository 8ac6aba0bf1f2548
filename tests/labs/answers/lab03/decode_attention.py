# %% right: head by head
def decode_attention(q_HD, k_KSD, v_KSD):
    G, out = len(q_HD) // len(k_KSD), []
    for h, q_D in enumerate(q_HD):
        weights_S = (k_KSD[h // G] @ q_D / math.sqrt(len(q_D))).softmax(dim=0)
        out.append(weights_S @ v_KSD[h // G])
    return torch.stack(out)


# %% right: the library call
def decode_attention(q_HD, k_KSD, v_KSD):
    q_KGD = q_HD.unflatten(0, (len(k_KSD), -1))
    return torch.nn.functional.scaled_dot_product_attention(q_KGD[None], k_KSD[None], v_KSD[None])[0].flatten(0, 1)


# %% right: softmax by hand, in place
def decode_attention(q_HD, k_KSD, v_KSD):
    weights = torch.bmm(q_HD.reshape(len(k_KSD), -1, q_HD.shape[1]), k_KSD.transpose(1, 2))
    weights.mul_(q_HD.shape[1] ** -0.5).sub_(weights.amax(dim=-1, keepdim=True)).exp_()
    weights.div_(weights.sum(dim=-1, keepdim=True))
    return torch.bmm(weights, v_KSD).reshape(q_HD.shape)


# %% wrong: C001, tiled heads
# says: the G heads of a group stand side by side
def decode_attention(q_HD, k_KSD, v_KSD):
    q_KGD = q_HD.view(-1, len(k_KSD), q_HD.shape[1]).transpose(0, 1)
    out = (q_KGD @ k_KSD.mT / math.sqrt(q_HD.shape[1])).softmax(dim=-1) @ v_KSD
    return out.transpose(0, 1).reshape(q_HD.shape)


# %% wrong: divided by K
# says: the heads are divided by K
def decode_attention(q_HD, k_KSD, v_KSD):
    K, out = len(k_KSD), []
    for h, q_D in enumerate(q_HD):
        j = min(h // K, K - 1)
        out.append((k_KSD[j] @ q_D / math.sqrt(len(q_D))).softmax(dim=0) @ v_KSD[j])
    return torch.stack(out)


# %% wrong: no scale
# says: not scaled by 1/sqrt(D)
def decode_attention(q_HD, k_KSD, v_KSD):
    q_KGD = q_HD.view(len(k_KSD), -1, q_HD.shape[1])
    return ((q_KGD @ k_KSD.mT).softmax(dim=-1) @ v_KSD).reshape(q_HD.shape)


# %% wrong: scaled by D
# says: scaled by 1/D
def decode_attention(q_HD, k_KSD, v_KSD):
    q_KGD = q_HD.view(len(k_KSD), -1, q_HD.shape[1])
    return ((q_KGD @ k_KSD.mT / q_HD.shape[1]).softmax(dim=-1) @ v_KSD).reshape(q_HD.shape)


# %% wrong: the starting point
# says: clone made a tensor
def decode_attention(q_HD, k_KSD, v_KSD):
    return decode_with_copies(q_HD, k_KSD, v_KSD)


# %% wrong: a broadcast that matmul copies
# says: that is a copy
def decode_attention(q_HD, k_KSD, v_KSD):
    q = q_HD.view(len(k_KSD), -1, 1, q_HD.shape[1])
    return ((q @ k_KSD[:, None].mT / math.sqrt(q_HD.shape[1])).softmax(-1) @ v_KSD[:, None]).reshape(q_HD.shape)


# %% wrong: groups left apart
# says: of another kind or shape
def decode_attention(q_HD, k_KSD, v_KSD):
    q_KGD = q_HD.view(len(k_KSD), -1, q_HD.shape[1])
    return (q_KGD @ k_KSD.mT / math.sqrt(q_HD.shape[1])).softmax(dim=-1) @ v_KSD


# %% wrong: the caller's queries scaled in place
# says: changes something that it was given
def decode_attention(q_HD, k_KSD, v_KSD):
    q_HD /= math.sqrt(q_HD.shape[1])
    return ((q_HD.view(len(k_KSD), -1, q_HD.shape[1]) @ k_KSD.mT).softmax(dim=-1) @ v_KSD).reshape(q_HD.shape)
