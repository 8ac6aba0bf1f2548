# %% right: sqrt and a division
@triton.jit
def add_norm(x, residual, weight, out, total, x_n, residual_n, out_n, total_n, M, eps, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    m = tl.arange(0, BLOCK)
    used = m < M
    s = tl.load(x + n * x_n + m, mask=used, other=0.0) + tl.load(residual + n * residual_n + m, mask=used, other=0.0)
    w = tl.load(weight + m, mask=used, other=0.0)
    root = tl.sqrt(tl.sum(s * s, 0) / M + eps)
    tl.store(out + n * out_n + m, s / root * w, mask=used)
    tl.store(total + n * total_n + m, s, mask=used)


# %% right: in double names, the weight first
@triton.jit
def add_norm(x, residual, weight, out, total, x_n, residual_n, out_n, total_n, M, eps, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    m = tl.arange(0, BLOCK)
    used = m < M
    w = tl.load(weight + m, mask=used, other=0.0)
    a = tl.load(x + n * x_n + m, mask=used, other=0.0)
    b = tl.load(residual + n * residual_n + m, mask=used, other=0.0)
    s = a + b
    tl.store(total + n * total_n + m, s, mask=used)
    square = tl.where(used, s * s, 0.0)
    tl.store(out + n * out_n + m, (s * tl.rsqrt(tl.sum(square, 0) / M + eps)) * w, mask=used)


# %% wrong: mean over the lanes
# says: the mean is over BLOCK lanes
@triton.jit
def add_norm(x, residual, weight, out, total, x_n, residual_n, out_n, total_n, M, eps, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    m = tl.arange(0, BLOCK)
    used = m < M
    s = tl.load(x + n * x_n + m, mask=used, other=0.0) + tl.load(residual + n * residual_n + m, mask=used, other=0.0)
    w = tl.load(weight + m, mask=used, other=0.0)
    tl.store(total + n * total_n + m, s, mask=used)
    tl.store(out + n * out_n + m, s * tl.rsqrt(tl.sum(s * s, 0) / BLOCK + eps) * w, mask=used)


# %% wrong: no mean
# says: it is the root of the sum of squares
@triton.jit
def add_norm(x, residual, weight, out, total, x_n, residual_n, out_n, total_n, M, eps, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    m = tl.arange(0, BLOCK)
    used = m < M
    s = tl.load(x + n * x_n + m, mask=used, other=0.0) + tl.load(residual + n * residual_n + m, mask=used, other=0.0)
    w = tl.load(weight + m, mask=used, other=0.0)
    tl.store(total + n * total_n + m, s, mask=used)
    tl.store(out + n * out_n + m, s * tl.rsqrt(tl.sum(s * s, 0) + eps) * w, mask=used)


# %% wrong: no eps
# says: eps is left out
@triton.jit
def add_norm(x, residual, weight, out, total, x_n, residual_n, out_n, total_n, M, eps, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    m = tl.arange(0, BLOCK)
    used = m < M
    s = tl.load(x + n * x_n + m, mask=used, other=0.0) + tl.load(residual + n * residual_n + m, mask=used, other=0.0)
    w = tl.load(weight + m, mask=used, other=0.0)
    tl.store(total + n * total_n + m, s, mask=used)
    tl.store(out + n * out_n + m, s * tl.rsqrt(tl.sum(s * s, 0) / M) * w, mask=used)


# %% wrong: norm of x alone
# says: the mean square is that of x alone
@triton.jit
def add_norm(x, residual, weight, out, total, x_n, residual_n, out_n, total_n, M, eps, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    m = tl.arange(0, BLOCK)
    used = m < M
    a = tl.load(x + n * x_n + m, mask=used, other=0.0)
    s = a + tl.load(residual + n * residual_n + m, mask=used, other=0.0)
    w = tl.load(weight + m, mask=used, other=0.0)
    tl.store(total + n * total_n + m, s, mask=used)
    tl.store(out + n * out_n + m, s * tl.rsqrt(tl.sum(a * a, 0) / M + eps) * w, mask=used)


# %% wrong: no weight
# says: the learned weight is left out
@triton.jit
def add_norm(x, residual, weight, out, total, x_n, residual_n, out_n, total_n, M, eps, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    m = tl.arange(0, BLOCK)
    used = m < M
    s = tl.load(x + n * x_n + m, mask=used, other=0.0) + tl.load(residual + n * residual_n + m, mask=used, other=0.0)
    tl.store(total + n * total_n + m, s, mask=used)
    tl.store(out + n * out_n + m, s * tl.rsqrt(tl.sum(s * s, 0) / M + eps), mask=used)


# %% wrong: the sum is not kept
# says: the sum is not stored
@triton.jit
def add_norm(x, residual, weight, out, total, x_n, residual_n, out_n, total_n, M, eps, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    m = tl.arange(0, BLOCK)
    used = m < M
    s = tl.load(x + n * x_n + m, mask=used, other=0.0) + tl.load(residual + n * residual_n + m, mask=used, other=0.0)
    w = tl.load(weight + m, mask=used, other=0.0)
    tl.store(out + n * out_n + m, s * tl.rsqrt(tl.sum(s * s, 0) / M + eps) * w, mask=used)


# %% wrong: reads its rows twice
# says: keep the sum in registers
@triton.jit
def add_norm(x, residual, weight, out, total, x_n, residual_n, out_n, total_n, M, eps, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    m = tl.arange(0, BLOCK)
    used = m < M
    s = tl.load(x + n * x_n + m, mask=used, other=0.0) + tl.load(residual + n * residual_n + m, mask=used, other=0.0)
    w = tl.load(weight + m, mask=used, other=0.0)
    tl.store(total + n * total_n + m, s, mask=used)
    again = tl.load(x + n * x_n + m, mask=used, other=0.0) + tl.load(residual + n * residual_n + m, mask=used, other=0.0)
    tl.store(out + n * out_n + m, again * tl.rsqrt(tl.sum(s * s, 0) / M + eps) * w, mask=used)


# %% wrong: no mask at the load
# says: is a mask missing
@triton.jit
def add_norm(x, residual, weight, out, total, x_n, residual_n, out_n, total_n, M, eps, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    m = tl.arange(0, BLOCK)
    used = m < M
    s = tl.load(x + n * x_n + m) + tl.load(residual + n * residual_n + m)
    w = tl.load(weight + m, mask=used, other=0.0)
    tl.store(total + n * total_n + m, s, mask=used)
    tl.store(out + n * out_n + m, s * tl.rsqrt(tl.sum(s * s, 0) / M + eps) * w, mask=used)
