# %% right: all tiles' own first, merged by hand
@triton.jit
def log_sum(x, out, x_n, V, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    top = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    start = 0
    while start < V:
        tile = tl.load(x + n * x_n + start + i, mask=start + i < V, other=float("-inf"))
        mine = tl.max(tile, 0)
        base = tl.where(mine == float("-inf"), 0.0, mine)
        part = tl.sum(tl.exp(tile - base), 0)
        both = tl.maximum(top, mine)
        safe = tl.where(both == float("-inf"), 0.0, both)
        total = total * tl.exp(top - safe) + part * tl.exp(mine - safe)
        top = both
        start += BLOCK
    tl.store(out + n + tl.arange(0, 1), top + tl.log(total))

# %% right: a running log-sum instead of maximum and sum
@triton.jit
def log_sum(x, out, x_n, V, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    so_far = tl.full([1], float("-inf"), tl.float32)
    for start in tl.range(0, V, BLOCK):
        i = start + tl.arange(0, BLOCK)
        s = tl.load(x + n * x_n + i, mask=i < V, other=float("-inf"))
        m = tl.maximum(so_far, tl.max(s, 0))
        m = tl.where(m == float("-inf"), 0.0, m)
        so_far = m + tl.log(tl.exp(so_far - m) + tl.sum(tl.exp(s - m), 0))
    tl.store(out + n + tl.arange(0, 1), so_far)

# %% wrong: the sum stays
# says: the sum is not rescaled when the maximum grows
@triton.jit
def log_sum(x, out, x_n, V, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    m = tl.full([1], float("-inf"), tl.float32)
    l = tl.zeros([1], tl.float32)
    for start in tl.range(0, V, BLOCK):
        i = start + tl.arange(0, BLOCK)
        s = tl.load(x + n * x_n + i, mask=i < V, other=float("-inf"))
        m = tl.maximum(m, tl.max(s, 0))
        l += tl.sum(tl.exp(s - tl.where(m == float("-inf"), 0.0, m)), 0)
    tl.store(out + n + tl.arange(0, 1), m + tl.log(l))

# %% wrong: no maximum
# says: no maximum is subtracted
@triton.jit
def log_sum(x, out, x_n, V, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    l = tl.zeros([1], tl.float32)
    for start in tl.range(0, V, BLOCK):
        i = start + tl.arange(0, BLOCK)
        l += tl.sum(tl.exp(tl.load(x + n * x_n + i, mask=i < V, other=float("-inf"))), 0)
    tl.store(out + n + tl.arange(0, 1), tl.log(l))

# %% wrong: zeros behind the end
# says: the lanes behind the end of the row count
@triton.jit
def log_sum(x, out, x_n, V, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    m = tl.full([1], float("-inf"), tl.float32)
    l = tl.zeros([1], tl.float32)
    for start in tl.range(0, V, BLOCK):
        i = start + tl.arange(0, BLOCK)
        s = tl.load(x + n * x_n + i, mask=i < V, other=0.0)
        m_new = tl.maximum(m, tl.max(s, 0))
        safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        l = l * tl.exp(m - safe) + tl.sum(tl.exp(s - safe), 0)
        m = m_new
    tl.store(out + n + tl.arange(0, 1), m + tl.log(l))

# %% wrong: no guard
# says: -inf minus -inf gives NaN
@triton.jit
def log_sum(x, out, x_n, V, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    m = tl.full([1], float("-inf"), tl.float32)
    l = tl.zeros([1], tl.float32)
    for start in tl.range(0, V, BLOCK):
        i = start + tl.arange(0, BLOCK)
        s = tl.load(x + n * x_n + i, mask=i < V, other=float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 0))
        l = l * tl.exp(m - m_new) + tl.sum(tl.exp(s - m_new), 0)
        m = m_new
    tl.store(out + n + tl.arange(0, 1), m + tl.log(l))

# %% wrong: no mask
# says: places that belong to no tensor
@triton.jit
def log_sum(x, out, x_n, V, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    m = tl.full([1], float("-inf"), tl.float32)
    l = tl.zeros([1], tl.float32)
    for start in tl.range(0, V, BLOCK):
        s = tl.load(x + n * x_n + start + tl.arange(0, BLOCK))
        m_new = tl.maximum(m, tl.max(s, 0))
        safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        l = l * tl.exp(m - safe) + tl.sum(tl.exp(s - safe), 0)
        m = m_new
    tl.store(out + n + tl.arange(0, 1), m + tl.log(l))

# %% wrong: two passes
# says: take maximum and sum along together, in one pass
@triton.jit
def log_sum(x, out, x_n, V, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    m = tl.full([1], float("-inf"), tl.float32)
    for start in tl.range(0, V, BLOCK):
        i = start + tl.arange(0, BLOCK)
        m = tl.maximum(m, tl.max(tl.load(x + n * x_n + i, mask=i < V, other=float("-inf")), 0))
    safe = tl.where(m == float("-inf"), 0.0, m)
    l = tl.zeros([1], tl.float32)
    for start in tl.range(0, V, BLOCK):
        i = start + tl.arange(0, BLOCK)
        l += tl.sum(tl.exp(tl.load(x + n * x_n + i, mask=i < V, other=float("-inf")) - safe), 0)
    tl.store(out + n + tl.arange(0, 1), m + tl.log(l))
