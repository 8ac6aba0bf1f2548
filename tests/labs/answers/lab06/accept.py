# %% right: as a formula
def accept(token, q_V, p_V, u):
    if u * q_V[token] < p_V[token]:
        return True, None
    left_V = torch.relu(p_V - q_V)
    return False, left_V / left_V.sum()


# %% right: token by token
def accept(token, q_V, p_V, u):
    kept = u < min(1.0, p_V[token].item() / q_V[token].item())
    if kept:
        return kept, None
    left = [max(p - q, 0.0) for p, q in zip(p_V.tolist(), q_V.tolist())]
    return kept, torch.tensor([x / sum(left) for x in left], dtype=p_V.dtype)


# %% wrong: q left out
# says: q is left out
def accept(token, q_V, p_V, u):
    if u < p_V[token]:
        return True, None
    left_V = (p_V - q_V).clamp(min=0)
    return False, left_V / left_V.sum()


# %% wrong: the ratio on its head
# says: the ratio stands on its head
def accept(token, q_V, p_V, u):
    if p_V[token] == 0 or u < q_V[token] / p_V[token]:
        return True, None
    left_V = (p_V - q_V).clamp(min=0)
    return False, left_V / left_V.sum()


# %% wrong: no chance involved
# says: u is not used
def accept(token, q_V, p_V, u):
    if p_V[token] >= q_V[token]:
        return True, None
    left_V = (p_V - q_V).clamp(min=0)
    return False, left_V / left_V.sum()


# %% wrong: the correction from p
# says: the correction is drawn from p
def accept(token, q_V, p_V, u):
    if u < p_V[token] / q_V[token]:
        return True, None
    return False, p_V


# %% wrong: does not sum to one
# says: what is left does not sum to 1
def accept(token, q_V, p_V, u):
    if u < p_V[token] / q_V[token]:
        return True, None
    return False, (p_V - q_V).clamp(min=0)


# %% wrong: the distance
# says: the distance |p - q| is taken
def accept(token, q_V, p_V, u):
    if u < p_V[token] / q_V[token]:
        return True, None
    gap_V = (p_V - q_V).abs()
    return False, gap_V / gap_V.sum()


# %% wrong: only the guess is ruled out
# says: the guess alone is taken out of p
def accept(token, q_V, p_V, u):
    if u < p_V[token] / q_V[token]:
        return True, None
    left_V = p_V.clone()
    left_V[token] = 0
    return False, left_V / left_V.sum()


# %% wrong: always something left
# says: there is nothing to correct then: None
def accept(token, q_V, p_V, u):
    left_V = (p_V - q_V).clamp(min=0)
    return u < p_V[token] / q_V[token], left_V / left_V.sum()


# %% wrong: only a verdict
# says: a pair was wanted
def accept(token, q_V, p_V, u):
    return bool(u < p_V[token] / q_V[token])
