# %% right: rsqrt, weight first
@triton.jit
def add_rmsnorm(x, residual, weight, total, normed, x_n, residual_n, total_n, normed_n, M, eps, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < M
    w = tl.load(weight + i, mask=inside, other=0.0)
    both = tl.load(x + n * x_n + i, mask=inside, other=0.0) + tl.load(residual + n * residual_n + i, mask=inside, other=0.0)
    tl.store(total + n * total_n + i, both, mask=inside)
    scale = tl.rsqrt(tl.sum(both * both, 0) / M + eps)
    tl.store(normed + n * normed_n + i, both * scale * w, mask=inside)

# %% right: hidden lanes put out by where
@triton.jit
def add_rmsnorm(x, residual, weight, total, normed, x_n, residual_n, total_n, normed_n, M, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    one = tl.load(x + row * x_n + i, mask=i < M)
    two = tl.load(residual + row * residual_n + i, mask=i < M)
    y = tl.where(i < M, one + two, 0.0)
    tl.store(total + row * total_n + i, y, mask=i < M)
    y = y / tl.sqrt(eps + tl.sum(y * y, 0) * (1.0 / M))
    tl.store(normed + row * normed_n + i, y * tl.load(weight + i, mask=i < M, other=0.0), mask=i < M)

# %% wrong: the mean of the tile
# says: the mean is taken over the whole tile
@triton.jit
def add_rmsnorm(x, residual, weight, total, normed, x_n, residual_n, total_n, normed_n, M, eps, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < M
    both = tl.load(x + n * x_n + i, mask=inside, other=0.0) + tl.load(residual + n * residual_n + i, mask=inside, other=0.0)
    tl.store(total + n * total_n + i, both, mask=inside)
    scale = 1.0 / tl.sqrt(tl.sum(both * both, 0) / BLOCK + eps)
    tl.store(normed + n * normed_n + i, both * scale * tl.load(weight + i, mask=inside, other=0.0), mask=inside)

# %% wrong: eps outside
# says: eps is added to the root
@triton.jit
def add_rmsnorm(x, residual, weight, total, normed, x_n, residual_n, total_n, normed_n, M, eps, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < M
    both = tl.load(x + n * x_n + i, mask=inside, other=0.0) + tl.load(residual + n * residual_n + i, mask=inside, other=0.0)
    tl.store(total + n * total_n + i, both, mask=inside)
    scale = 1.0 / (tl.sqrt(tl.sum(both * both, 0) / M) + eps)
    tl.store(normed + n * normed_n + i, both * scale * tl.load(weight + i, mask=inside, other=0.0), mask=inside)

# %% wrong: x alone
# says: x alone is normed
@triton.jit
def add_rmsnorm(x, residual, weight, total, normed, x_n, residual_n, total_n, normed_n, M, eps, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < M
    both = tl.load(x + n * x_n + i, mask=inside, other=0.0) + tl.load(residual + n * residual_n + i, mask=inside, other=0.0)
    tl.store(total + n * total_n + i, both, mask=inside)
    both = both - tl.load(residual + n * residual_n + i, mask=inside, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(both * both, 0) / M + eps)
    tl.store(normed + n * normed_n + i, both * scale * tl.load(weight + i, mask=inside, other=0.0), mask=inside)

# %% wrong: no weight
# says: not multiplied by the weight
@triton.jit
def add_rmsnorm(x, residual, weight, total, normed, x_n, residual_n, total_n, normed_n, M, eps, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < M
    both = tl.load(x + n * x_n + i, mask=inside, other=0.0) + tl.load(residual + n * residual_n + i, mask=inside, other=0.0)
    tl.store(total + n * total_n + i, both, mask=inside)
    scale = 1.0 / tl.sqrt(tl.sum(both * both, 0) / M + eps)
    tl.store(normed + n * normed_n + i, both * scale, mask=inside)

# %% wrong: the sum comes back from memory
# says: is still on the chip
@triton.jit
def add_rmsnorm(x, residual, weight, total, normed, x_n, residual_n, total_n, normed_n, M, eps, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < M
    both = tl.load(x + n * x_n + i, mask=inside, other=0.0) + tl.load(residual + n * residual_n + i, mask=inside, other=0.0)
    tl.store(total + n * total_n + i, both, mask=inside)
    both = tl.load(total + n * total_n + i, mask=inside, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(both * both, 0) / M + eps)
    tl.store(normed + n * normed_n + i, both * scale * tl.load(weight + i, mask=inside, other=0.0), mask=inside)

# %% wrong: rows taken to be dense
# says: belong to no tensor
@triton.jit
def add_rmsnorm(x, residual, weight, total, normed, x_n, residual_n, total_n, normed_n, M, eps, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < M
    both = tl.load(x + n * M + i, mask=inside, other=0.0) + tl.load(residual + n * residual_n + i, mask=inside, other=0.0)
    tl.store(total + n * total_n + i, both, mask=inside)
    scale = 1.0 / tl.sqrt(tl.sum(both * both, 0) / M + eps)
    tl.store(normed + n * normed_n + i, both * scale * tl.load(weight + i, mask=inside, other=0.0), mask=inside)

# %% wrong: what is hidden is not 0
# says: a masked load wants other=0.0
@triton.jit
def add_rmsnorm(x, residual, weight, total, normed, x_n, residual_n, total_n, normed_n, M, eps, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    inside = i < M
    both = tl.load(x + n * x_n + i, mask=inside) + tl.load(residual + n * residual_n + i, mask=inside)
    tl.store(total + n * total_n + i, both, mask=inside)
    scale = 1.0 / tl.sqrt(tl.sum(both * both, 0) / M + eps)
    tl.store(normed + n * normed_n + i, both * scale * tl.load(weight + i, mask=inside, other=0.0), mask=inside)
