# %% right: heads as an axis
def ov_matrix(w_v, w_o, head, H, K):
    v_KDM = w_v.view(K, -1, w_v.shape[1])
    o_HDM = w_o.T.reshape(H, -1, len(w_o))
    return torch.einsum("dm,dn->mn", v_KDM[head // (H // K)], o_HDM[head])


# %% right: a row for each unit vector
def ov_matrix(w_v, w_o, head, H, K):
    D, k = len(w_v) // K, head * K // H
    rows = []
    for x_M in torch.eye(w_v.shape[1]):
        value = w_v[k * D : (k + 1) * D] @ x_M
        rows.append(w_o[:, head * D : (head + 1) * D] @ value)
    return torch.stack(rows)


# %% wrong: dealt out in turn
# says: the KV heads are dealt out in turn
def ov_matrix(w_v, w_o, head, H, K):
    D, k = len(w_v) // K, head % K
    return w_v[k * D : (k + 1) * D].T @ w_o[:, head * D : (head + 1) * D].T


# %% wrong: by K
# says: the query head is divided by the number of KV heads
def ov_matrix(w_v, w_o, head, H, K):
    D, k = len(w_v) // K, min(K - 1, head // K)
    return w_v[k * D : (k + 1) * D].T @ w_o[:, head * D : (head + 1) * D].T


# %% wrong: rows
# says: rows of w_o are taken
def ov_matrix(w_v, w_o, head, H, K):
    D, k = len(w_v) // K, head // (H // K)
    return w_v[k * D : (k + 1) * D].T @ w_o[head * D : (head + 1) * D]


# %% wrong: for columns
# says: the matrix is transposed
def ov_matrix(w_v, w_o, head, H, K):
    D, k = len(w_v) // K, head // (H // K)
    return w_o[:, head * D : (head + 1) * D] @ w_v[k * D : (k + 1) * D]


# %% wrong: the first KV head
# says: every head is given KV head 0
def ov_matrix(w_v, w_o, head, H, K):
    D = len(w_v) // K
    return w_v[:D].T @ w_o[:, head * D : (head + 1) * D].T


# %% wrong: scaled
# says: the result is not the right one
def ov_matrix(w_v, w_o, head, H, K):
    D, k = len(w_v) // K, head // (H // K)
    return w_v[k * D : (k + 1) * D].T @ w_o[:, head * D : (head + 1) * D].T / D**0.5
