# %% right: pointers moved first
@triton.jit
def axpy(x, y, out, a, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    lane = tl.arange(0, BLOCK)
    left = lane < n - start
    one = tl.load(x + start + lane, mask=left, other=1.0)
    two = tl.load(y + start + lane, mask=left, other=1.0)
    tl.store(out + start + lane, one * a + two, mask=left)

# %% right: without other, since nothing masked is stored
@triton.jit
def axpy(x, y, out, a, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, a * tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

# %% wrong: every program is the first
# says: every program works on the first block
@triton.jit
def axpy(x, y, out, a, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, a * tl.load(x + i, mask=i < n, other=0.0) + tl.load(y + i, mask=i < n, other=0.0), mask=i < n)

# %% wrong: both scaled
# says: y is multiplied by a as well
@triton.jit
def axpy(x, y, out, a, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, a * (tl.load(x + i, mask=i < n, other=0.0) + tl.load(y + i, mask=i < n, other=0.0)), mask=i < n)

# %% wrong: no mask at the loads
# says: reads 3 places that belong to no tensor, the first at x + 5
@triton.jit
def axpy(x, y, out, a, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, a * tl.load(x + i) + tl.load(y + i), mask=i < n)

# %% wrong: no mask at the store
# says: writes 3 places that belong to no tensor, the first at out + 5
@triton.jit
def axpy(x, y, out, a, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, a * tl.load(x + i, mask=i < n, other=0.0) + tl.load(y + i, mask=i < n, other=0.0))

# %% wrong: plain Python
# says: leave the line `@triton.jit` above its `def`
def axpy(x, y, out, a, n, BLOCK):
    out[:n] = a * x[:n] + y[:n]

# %% wrong: every program does all
# says: does every program work on all numbers? Program p has block p
@triton.jit
def axpy(x, y, out, a, n, BLOCK: tl.constexpr):
    for i in range(n):
        tl.store(out + i, a * tl.load(x + i) + tl.load(y + i))

# %% wrong: the sum is stored to y
# says: the kernel writes to y; store to out only
@triton.jit
def axpy(x, y, out, a, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, a * tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)
