# %% right: a loop over the parts
@triton.jit
def merge(parts, logs, out, parts_n, parts_s, logs_n, out_n, S, D: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    d = tl.arange(0, D)
    m = tl.full([1], float("-inf"), tl.float32)
    l = tl.zeros([1], tl.float32)
    acc = tl.zeros([D], tl.float32)
    for s in tl.range(0, S):
        log = tl.load(logs + n * logs_n + s + tl.arange(0, 1))
        m_new = tl.maximum(m, log)
        safe = tl.where(m_new == float("-inf"), 0.0, m_new)
        shrink, w = tl.exp(m - safe), tl.exp(log - safe)
        part = tl.load(parts + n * parts_n + s * parts_s + d, mask=w > 0.0, other=0.0)
        acc = acc * shrink + part * w
        l = l * shrink + w
        m = m_new
    tl.store(out + n * out_n + d, acc / tl.where(l == 0.0, 1.0, l))

# %% right: what is not wanted is put out after loading
@triton.jit
def merge(parts, logs, out, parts_n, parts_s, logs_n, out_n, S, D: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    s = tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    log = tl.load(logs + n * logs_n + s, mask=s < S, other=float("-inf"))
    top = tl.maximum(tl.max(log, 0), -1e30)
    w = tl.exp(log - top)
    w = w / tl.maximum(tl.sum(w, 0), 1e-30)
    part = tl.load(parts + n * parts_n + s[:, None] * parts_s + d[None, :], mask=s[:, None] < S, other=0.0)
    tl.store(out + n * out_n + d, tl.sum(tl.where(w[:, None] > 0.0, part, 0.0) * w[:, None], 0))

# %% wrong: the mean
# says: every part weighs the same
@triton.jit
def merge(parts, logs, out, parts_n, parts_s, logs_n, out_n, S, D: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    s = tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    log = tl.load(logs + n * logs_n + s, mask=s < S, other=float("-inf"))
    part = tl.load(parts + n * parts_n + s[:, None] * parts_s + d[None, :], mask=(log > float("-inf"))[:, None], other=0.0)
    tl.store(out + n * out_n + d, tl.sum(part, 0) / S)

# %% wrong: powers of two
# says: these log-sums are natural logarithms
@triton.jit
def merge(parts, logs, out, parts_n, parts_s, logs_n, out_n, S, D: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    s = tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    log = tl.load(logs + n * logs_n + s, mask=s < S, other=float("-inf"))
    top = tl.max(log, 0)
    w = tl.exp2(log - tl.where(top == float("-inf"), 0.0, top))
    part = tl.load(parts + n * parts_n + s[:, None] * parts_s + d[None, :], mask=(w > 0.0)[:, None], other=0.0)
    total = tl.sum(w, 0)
    tl.store(out + n * out_n + d, tl.sum(part * w[:, None], 0) / tl.where(total == 0.0, 1.0, total))

# %% wrong: zero times NaN
# says: an empty part is multiplied by 0
@triton.jit
def merge(parts, logs, out, parts_n, parts_s, logs_n, out_n, S, D: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    s = tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    log = tl.load(logs + n * logs_n + s, mask=s < S, other=float("-inf"))
    top = tl.max(log, 0)
    w = tl.exp(log - tl.where(top == float("-inf"), 0.0, top))
    part = tl.load(parts + n * parts_n + s[:, None] * parts_s + d[None, :], mask=s[:, None] < S, other=0.0)
    total = tl.sum(w, 0)
    tl.store(out + n * out_n + d, tl.sum(part * w[:, None], 0) / tl.where(total == 0.0, 1.0, total))

# %% wrong: no guard
# says: a row whose parts are all empty comes out as NaN
@triton.jit
def merge(parts, logs, out, parts_n, parts_s, logs_n, out_n, S, D: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    s = tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    log = tl.load(logs + n * logs_n + s, mask=s < S, other=float("-inf"))
    w = tl.exp(log - tl.max(log, 0))
    part = tl.load(parts + n * parts_n + s[:, None] * parts_s + d[None, :], mask=(log > float("-inf"))[:, None], other=0.0)
    tl.store(out + n * out_n + d, tl.sum(part * w[:, None], 0) / tl.sum(w, 0))

# %% wrong: as if nothing lay between the rows
# says: is a mask missing, or a stride wrong
@triton.jit
def merge(parts, logs, out, parts_n, parts_s, logs_n, out_n, S, D: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    s = tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    log = tl.load(logs + n * S + s, mask=s < S, other=float("-inf"))
    top = tl.max(log, 0)
    w = tl.exp(log - tl.where(top == float("-inf"), 0.0, top))
    part = tl.load(parts + n * S * D + s[:, None] * D + d[None, :], mask=(w > 0.0)[:, None], other=0.0)
    total = tl.sum(w, 0)
    tl.store(out + n * D + d, tl.sum(part * w[:, None], 0) / tl.where(total == 0.0, 1.0, total))

# %% wrong: no maximum, the sum guarded
# says: large log-sums overflow
@triton.jit
def merge(parts, logs, out, parts_n, parts_s, logs_n, out_n, S, D: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    s = tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    w = tl.exp(tl.load(logs + n * logs_n + s, mask=s < S, other=float("-inf")))
    part = tl.load(parts + n * parts_n + s[:, None] * parts_s + d[None, :], mask=(w > 0.0)[:, None], other=0.0)
    total = tl.sum(w, 0)
    tl.store(out + n * out_n + d, tl.sum(part * w[:, None], 0) / tl.where(total == 0.0, 1.0, total))

# %% wrong: no maximum, no guard
# says: take the largest away before
@triton.jit
def merge(parts, logs, out, parts_n, parts_s, logs_n, out_n, S, D: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0)
    s = tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    w = tl.exp(tl.load(logs + n * logs_n + s, mask=s < S, other=float("-inf")))
    part = tl.load(parts + n * parts_n + s[:, None] * parts_s + d[None, :], mask=(w > 0.0)[:, None], other=0.0)
    total = tl.sum(w, 0)
    tl.store(out + n * out_n + d, tl.sum(part * w[:, None], 0) / total)
