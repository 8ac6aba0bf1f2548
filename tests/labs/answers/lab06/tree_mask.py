# %% right: up to the root, node by node
def tree_mask(parents):
    mask_TT = torch.zeros(len(parents), len(parents), dtype=torch.bool)
    for i in range(len(parents)):
        node = i
        while node != -1:
            mask_TT[i, node] = True
            node = parents[node]
    return mask_TT


# %% right: steps of a matrix
def tree_mask(parents):
    T = len(parents)
    step_TT = torch.zeros(T, T)
    for i, parent in enumerate(parents):
        if parent >= 0:
            step_TT[i, parent] = 1
    seen_TT, power_TT = torch.eye(T), torch.eye(T)
    for _ in range(T):
        power_TT = power_TT @ step_TT
        seen_TT = seen_TT + power_TT
    return seen_TT > 0


# %% wrong: causal
# says: every earlier node is seen, uncles too
def tree_mask(parents):
    return torch.ones(len(parents), len(parents)).tril().bool()


# %% wrong: by depth
# says: an uncle has a smaller depth too
def tree_mask(parents):
    depths = []
    for parent in parents:
        depths.append(0 if parent < 0 else depths[parent] + 1)
    depth_T = torch.tensor(depths, dtype=torch.long)
    return (depth_T[:, None] > depth_T[None, :]) | torch.eye(len(parents), dtype=torch.bool)


# %% wrong: the parent only
# says: grandparents stand on the path too
def tree_mask(parents):
    mask_TT = torch.eye(len(parents), dtype=torch.bool)
    for i, parent in enumerate(parents):
        if parent >= 0:
            mask_TT[i, parent] = True
    return mask_TT


# %% wrong: without itself
# says: a node does not see itself
def tree_mask(parents):
    mask_TT = torch.zeros(len(parents), len(parents), dtype=torch.bool)
    for i, parent in enumerate(parents):
        if parent >= 0:
            mask_TT[i] = mask_TT[parent]
            mask_TT[i, parent] = True
    return mask_TT


# %% wrong: turned over
# says: the mask is turned over
def tree_mask(parents):
    mask_TT = torch.eye(len(parents), dtype=torch.bool)
    for i, parent in enumerate(parents):
        if parent >= 0:
            mask_TT[i] |= mask_TT[parent]
    return mask_TT.T


# %% wrong: numbers
# says: not ones and zeros
def tree_mask(parents):
    mask_TT = torch.eye(len(parents))
    for i, parent in enumerate(parents):
        if parent >= 0:
            mask_TT[i] += mask_TT[parent]
    return mask_TT
