# %% right: idle rows go home at once
@triton.jit
def write_turned(k, v, cos, sin, slots, k_pages, v_pages, x_b, x_k, t_b, p_p, p_c, p_k, C: tl.constexpr, E: tl.constexpr):
    b, head, e = tl.program_id(0), tl.program_id(1), tl.arange(0, E)
    slot = tl.load(slots + b)
    if slot >= 0:
        x = b * x_b + head * x_k + e
        to = slot // C * p_p + slot % C * p_c + head * p_k + e
        first, second = tl.load(k + x), tl.load(k + x + E)
        c, s = tl.load(cos + b * t_b + e), tl.load(sin + b * t_b + e)
        tl.store(k_pages + to, first * c - second * s)
        tl.store(k_pages + to + E, second * c + first * s)
        tl.store(v_pages + to, tl.load(v + x))
        tl.store(v_pages + to + E, tl.load(v + x + E))


# %% right: masks, and the value as one tile
@triton.jit
def write_turned(k, v, cos, sin, slots, k_pages, v_pages, x_b, x_k, t_b, p_p, p_c, p_k, C: tl.constexpr, E: tl.constexpr):
    b, head = tl.program_id(0), tl.program_id(1)
    e, d = tl.arange(0, E), tl.arange(0, 2 * E)
    slot = tl.load(slots + b)
    mine_E, mine_D = (slot >= 0) & (e < E), (slot >= 0) & (d < 2 * E)
    k += b * x_b + head * x_k
    at = slot // C * p_p + slot % C * p_c + head * p_k
    cosine = tl.load(cos + b * t_b + e, mask=mine_E)
    sine = tl.load(sin + b * t_b + e, mask=mine_E)
    low, high = tl.load(k + e, mask=mine_E), tl.load(k + E + e, mask=mine_E)
    tl.store(k_pages + at + e, low * cosine - high * sine, mask=mine_E)
    tl.store(k_pages + at + E + e, high * cosine + low * sine, mask=mine_E)
    tl.store(v_pages + at + d, tl.load(v + b * x_b + head * x_k + d, mask=mine_D), mask=mine_D)


# %% wrong: idle rows pushed into the pool
# says: is written to slot 0
@triton.jit
def write_turned(k, v, cos, sin, slots, k_pages, v_pages, x_b, x_k, t_b, p_p, p_c, p_k, C: tl.constexpr, E: tl.constexpr):
    b, head, e = tl.program_id(0), tl.program_id(1), tl.arange(0, E)
    slot = tl.load(slots + b)
    slot = tl.maximum(slot, 0)
    if slot >= 0:
        x = b * x_b + head * x_k + e
        to = slot // C * p_p + slot % C * p_c + head * p_k + e
        first, second = tl.load(k + x), tl.load(k + x + E)
        c, s = tl.load(cos + b * t_b + e), tl.load(sin + b * t_b + e)
        tl.store(k_pages + to, first * c - second * s)
        tl.store(k_pages + to + E, second * c + first * s)
        tl.store(v_pages + to, tl.load(v + x))
        tl.store(v_pages + to + E, tl.load(v + x + E))


# %% wrong: neighbors are pairs
# says: in this layout it is j and j + D/2
@triton.jit
def write_turned(k, v, cos, sin, slots, k_pages, v_pages, x_b, x_k, t_b, p_p, p_c, p_k, C: tl.constexpr, E: tl.constexpr):
    b, head, e = tl.program_id(0), tl.program_id(1), tl.arange(0, E)
    slot = tl.load(slots + b)
    if slot >= 0:
        x = b * x_b + head * x_k
        to = slot // C * p_p + slot % C * p_c + head * p_k
        first, second = tl.load(k + x + 2 * e), tl.load(k + x + 2 * e + 1)
        c, s = tl.load(cos + b * t_b + e), tl.load(sin + b * t_b + e)
        tl.store(k_pages + to + 2 * e, first * c - second * s)
        tl.store(k_pages + to + 2 * e + 1, second * c + first * s)
        tl.store(v_pages + to + e, tl.load(v + x + e))
        tl.store(v_pages + to + E + e, tl.load(v + x + E + e))


# %% wrong: backwards
# says: the keys are turned backwards
@triton.jit
def write_turned(k, v, cos, sin, slots, k_pages, v_pages, x_b, x_k, t_b, p_p, p_c, p_k, C: tl.constexpr, E: tl.constexpr):
    b, head, e = tl.program_id(0), tl.program_id(1), tl.arange(0, E)
    slot = tl.load(slots + b)
    if slot >= 0:
        x = b * x_b + head * x_k + e
        to = slot // C * p_p + slot % C * p_c + head * p_k + e
        first, second = tl.load(k + x), tl.load(k + x + E)
        c, s = tl.load(cos + b * t_b + e), tl.load(sin + b * t_b + e)
        tl.store(k_pages + to, first * c + second * s)
        tl.store(k_pages + to + E, second * c - first * s)
        tl.store(v_pages + to, tl.load(v + x))
        tl.store(v_pages + to + E, tl.load(v + x + E))


# %% wrong: the first half is new already
# says: keep the old ones until both are done
@triton.jit
def write_turned(k, v, cos, sin, slots, k_pages, v_pages, x_b, x_k, t_b, p_p, p_c, p_k, C: tl.constexpr, E: tl.constexpr):
    b, head, e = tl.program_id(0), tl.program_id(1), tl.arange(0, E)
    slot = tl.load(slots + b)
    if slot >= 0:
        x = b * x_b + head * x_k + e
        to = slot // C * p_p + slot % C * p_c + head * p_k + e
        first, second = tl.load(k + x), tl.load(k + x + E)
        c, s = tl.load(cos + b * t_b + e), tl.load(sin + b * t_b + e)
        first = first * c - second * s
        tl.store(k_pages + to, first)
        tl.store(k_pages + to + E, second * c + first * s)
        tl.store(v_pages + to, tl.load(v + x))
        tl.store(v_pages + to + E, tl.load(v + x + E))


# %% wrong: values turned
# says: only queries and keys know positions
@triton.jit
def write_turned(k, v, cos, sin, slots, k_pages, v_pages, x_b, x_k, t_b, p_p, p_c, p_k, C: tl.constexpr, E: tl.constexpr):
    b, head, e = tl.program_id(0), tl.program_id(1), tl.arange(0, E)
    slot = tl.load(slots + b)
    if slot >= 0:
        x = b * x_b + head * x_k + e
        to = slot // C * p_p + slot % C * p_c + head * p_k + e
        first, second = tl.load(k + x), tl.load(k + x + E)
        c, s = tl.load(cos + b * t_b + e), tl.load(sin + b * t_b + e)
        tl.store(k_pages + to, first * c - second * s)
        tl.store(k_pages + to + E, second * c + first * s)
        low, high = tl.load(v + x), tl.load(v + x + E)
        tl.store(v_pages + to, low * c - high * s)
        tl.store(v_pages + to + E, high * c + low * s)


# %% wrong: not turned
# says: written as they came
@triton.jit
def write_turned(k, v, cos, sin, slots, k_pages, v_pages, x_b, x_k, t_b, p_p, p_c, p_k, C: tl.constexpr, E: tl.constexpr):
    b, head, e = tl.program_id(0), tl.program_id(1), tl.arange(0, E)
    slot = tl.load(slots + b)
    if slot >= 0:
        x = b * x_b + head * x_k + e
        to = slot // C * p_p + slot % C * p_c + head * p_k + e
        first, second = tl.load(k + x), tl.load(k + x + E)
        c, s = tl.load(cos + b * t_b + e), tl.load(sin + b * t_b + e)
        tl.store(k_pages + to, first)
        tl.store(k_pages + to + E, second)
        tl.store(v_pages + to, tl.load(v + x))
        tl.store(v_pages + to + E, tl.load(v + x + E))


# %% wrong: one angle for all rows
# says: turned by the first row's angles
@triton.jit
def write_turned(k, v, cos, sin, slots, k_pages, v_pages, x_b, x_k, t_b, p_p, p_c, p_k, C: tl.constexpr, E: tl.constexpr):
    b, head, e = tl.program_id(0), tl.program_id(1), tl.arange(0, E)
    slot = tl.load(slots + b)
    if slot >= 0:
        x = b * x_b + head * x_k + e
        to = slot // C * p_p + slot % C * p_c + head * p_k + e
        first, second = tl.load(k + x), tl.load(k + x + E)
        c, s = tl.load(cos + e), tl.load(sin + e)
        tl.store(k_pages + to, first * c - second * s)
        tl.store(k_pages + to + E, second * c + first * s)
        tl.store(v_pages + to, tl.load(v + x))
        tl.store(v_pages + to + E, tl.load(v + x + E))


# %% wrong: the key loaded twice
# says: load each half of a key once
@triton.jit
def write_turned(k, v, cos, sin, slots, k_pages, v_pages, x_b, x_k, t_b, p_p, p_c, p_k, C: tl.constexpr, E: tl.constexpr):
    b, head, d = tl.program_id(0), tl.program_id(1), tl.arange(0, 2 * E)
    slot = tl.load(slots + b)
    if slot >= 0:
        x = b * x_b + head * x_k
        to = slot // C * p_p + slot % C * p_c + head * p_k + d
        own, other = tl.load(k + x + d), tl.load(k + x + (d + E) % (2 * E))
        c, s = tl.load(cos + b * t_b + d % E), tl.load(sin + b * t_b + d % E)
        tl.store(k_pages + to, own * c + tl.where(d < E, -other, other) * s)
        tl.store(v_pages + to, tl.load(v + x + d))


# %% wrong: no mask
# says: places that belong to no tensor, the first at k_pages
@triton.jit
def write_turned(k, v, cos, sin, slots, k_pages, v_pages, x_b, x_k, t_b, p_p, p_c, p_k, C: tl.constexpr, E: tl.constexpr):
    b, head, e = tl.program_id(0), tl.program_id(1), tl.arange(0, E)
    slot = tl.load(slots + b)
    if slot >= -1:
        x = b * x_b + head * x_k + e
        to = slot // C * p_p + slot % C * p_c + head * p_k + e
        first, second = tl.load(k + x), tl.load(k + x + E)
        c, s = tl.load(cos + b * t_b + e), tl.load(sin + b * t_b + e)
        tl.store(k_pages + to, first * c - second * s)
        tl.store(k_pages + to + E, second * c + first * s)
        tl.store(v_pages + to, tl.load(v + x))
        tl.store(v_pages + to + E, tl.load(v + x + E))
