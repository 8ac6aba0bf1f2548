# %% right: whole tiles first, then the diagonal
@triton.jit
def flash(q, k, v, out, q_t, q_h, k_s, k_h, v_s, v_h, out_t, out_h, T, S, scale,
          G: tl.constexpr, D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    block = tl.program_id(0)
    h = tl.program_id(1)
    t = block * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.arange(0, D)
    q_tile = tl.load(q + t[:, None] * q_t + h * q_h + d[None, :], mask=t[:, None] < T, other=0.0)
    m = tl.full([BLOCK_T], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_T], tl.float32)
    acc = tl.zeros([BLOCK_T, D], tl.float32)
    whole = (S - T + block * BLOCK_T) // BLOCK_S * BLOCK_S
    end = tl.minimum(S, S - T + (block + 1) * BLOCK_T)
    k += (h // G) * k_h
    v += (h // G) * v_h
    for start in tl.range(0, whole, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        scores = tl.dot(q_tile * scale, tl.trans(tl.load(k + s[:, None] * k_s + d[None, :])), input_precision="ieee")
        top = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp(scores - top[:, None])
        acc = acc * tl.exp(m - top)[:, None] + tl.dot(p, tl.load(v + s[:, None] * v_s + d[None, :]), input_precision="ieee")
        l = l * tl.exp(m - top) + tl.sum(p, 1)
        m = top
    for start in tl.range(whole, end, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        k_tile = tl.load(k + s[:, None] * k_s + d[None, :], mask=s[:, None] < end, other=0.0)
        scores = tl.dot(q_tile * scale, tl.trans(k_tile), input_precision="ieee")
        scores = tl.where(s[None, :] <= (S - T + t)[:, None], scores, float("-inf"))
        top = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp(scores - top[:, None])
        v_tile = tl.load(v + s[:, None] * v_s + d[None, :], mask=s[:, None] < end, other=0.0)
        acc = acc * tl.exp(m - top)[:, None] + tl.dot(p, v_tile, input_precision="ieee")
        l = l * tl.exp(m - top) + tl.sum(p, 1)
        m = top
    tl.store(out + t[:, None] * out_t + h * out_h + d[None, :], acc / l[:, None], mask=t[:, None] < T)

# %% right: base 2
@triton.jit
def flash(q, k, v, out, q_t, q_h, k_s, k_h, v_s, v_h, out_t, out_h, T, S, scale,
          G: tl.constexpr, D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    block = tl.program_id(0)
    h = tl.program_id(1)
    t = block * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.arange(0, D)
    q_tile = tl.load(q + t[:, None] * q_t + h * q_h + d[None, :], mask=t[:, None] < T, other=0.0)
    m = tl.full([BLOCK_T], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_T], tl.float32)
    acc = tl.zeros([BLOCK_T, D], tl.float32)
    last = S - T + t
    end = tl.minimum(S, S - T + (block + 1) * BLOCK_T)
    for start in tl.range(0, end, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        inside = s[:, None] < end
        k_tile = tl.load(k + s[:, None] * k_s + (h // G) * k_h + d[None, :], mask=inside, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * (scale * 1.4426950408889634)
        scores = tl.where(s[None, :] <= last[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp2(scores - m_new[:, None])
        shrink = tl.exp2(m - m_new)
        l = l * shrink + tl.sum(p, 1)
        v_tile = tl.load(v + s[:, None] * v_s + (h // G) * v_h + d[None, :], mask=inside, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_tile, input_precision="ieee")
        m = m_new
    tl.store(out + t[:, None] * out_t + h * out_h + d[None, :], acc / l[:, None], mask=t[:, None] < T)

# %% wrong: the accumulator stays
# says: the accumulator is not rescaled when the maximum grows; the sum is
@triton.jit
def flash(q, k, v, out, q_t, q_h, k_s, k_h, v_s, v_h, out_t, out_h, T, S, scale,
          G: tl.constexpr, D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    block = tl.program_id(0)
    h = tl.program_id(1)
    t = block * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.arange(0, D)
    q_tile = tl.load(q + t[:, None] * q_t + h * q_h + d[None, :], mask=t[:, None] < T, other=0.0)
    m = tl.full([BLOCK_T], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_T], tl.float32)
    acc = tl.zeros([BLOCK_T, D], tl.float32)
    last = S - T + t
    end = tl.minimum(S, S - T + (block + 1) * BLOCK_T)
    for start in tl.range(0, end, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        inside = s[:, None] < end
        k_tile = tl.load(k + s[:, None] * k_s + (h // G) * k_h + d[None, :], mask=inside, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * scale
        scores = tl.where(s[None, :] <= last[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp(scores - m_new[:, None])
        shrink = tl.exp(m - m_new)
        l = l * shrink + tl.sum(p, 1)
        v_tile = tl.load(v + s[:, None] * v_s + (h // G) * v_h + d[None, :], mask=inside, other=0.0)
        acc = acc + tl.dot(p, v_tile, input_precision="ieee")
        m = m_new
    tl.store(out + t[:, None] * out_t + h * out_h + d[None, :], acc / l[:, None], mask=t[:, None] < T)

# %% wrong: the sum stays
# says: the sum is not rescaled when the maximum grows; the accumulator is
@triton.jit
def flash(q, k, v, out, q_t, q_h, k_s, k_h, v_s, v_h, out_t, out_h, T, S, scale,
          G: tl.constexpr, D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    block = tl.program_id(0)
    h = tl.program_id(1)
    t = block * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.arange(0, D)
    q_tile = tl.load(q + t[:, None] * q_t + h * q_h + d[None, :], mask=t[:, None] < T, other=0.0)
    m = tl.full([BLOCK_T], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_T], tl.float32)
    acc = tl.zeros([BLOCK_T, D], tl.float32)
    last = S - T + t
    end = tl.minimum(S, S - T + (block + 1) * BLOCK_T)
    for start in tl.range(0, end, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        inside = s[:, None] < end
        k_tile = tl.load(k + s[:, None] * k_s + (h // G) * k_h + d[None, :], mask=inside, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * scale
        scores = tl.where(s[None, :] <= last[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp(scores - m_new[:, None])
        shrink = tl.exp(m - m_new)
        l = l + tl.sum(p, 1)
        v_tile = tl.load(v + s[:, None] * v_s + (h // G) * v_h + d[None, :], mask=inside, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_tile, input_precision="ieee")
        m = m_new
    tl.store(out + t[:, None] * out_t + h * out_h + d[None, :], acc / l[:, None], mask=t[:, None] < T)

# %% wrong: both stay
# says: neither sum nor accumulator are rescaled
@triton.jit
def flash(q, k, v, out, q_t, q_h, k_s, k_h, v_s, v_h, out_t, out_h, T, S, scale,
          G: tl.constexpr, D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    block = tl.program_id(0)
    h = tl.program_id(1)
    t = block * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.arange(0, D)
    q_tile = tl.load(q + t[:, None] * q_t + h * q_h + d[None, :], mask=t[:, None] < T, other=0.0)
    m = tl.full([BLOCK_T], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_T], tl.float32)
    acc = tl.zeros([BLOCK_T, D], tl.float32)
    last = S - T + t
    end = tl.minimum(S, S - T + (block + 1) * BLOCK_T)
    for start in tl.range(0, end, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        inside = s[:, None] < end
        k_tile = tl.load(k + s[:, None] * k_s + (h // G) * k_h + d[None, :], mask=inside, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * scale
        scores = tl.where(s[None, :] <= last[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp(scores - m_new[:, None])
        shrink = tl.exp(m - m_new)
        l = l + tl.sum(p, 1)
        v_tile = tl.load(v + s[:, None] * v_s + (h // G) * v_h + d[None, :], mask=inside, other=0.0)
        acc = acc + tl.dot(p, v_tile, input_precision="ieee")
        m = m_new
    tl.store(out + t[:, None] * out_t + h * out_h + d[None, :], acc / l[:, None], mask=t[:, None] < T)

# %% wrong: mask in the upper left corner
# says: the queries are taken for the first T positions
@triton.jit
def flash(q, k, v, out, q_t, q_h, k_s, k_h, v_s, v_h, out_t, out_h, T, S, scale,
          G: tl.constexpr, D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    block = tl.program_id(0)
    h = tl.program_id(1)
    t = block * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.arange(0, D)
    q_tile = tl.load(q + t[:, None] * q_t + h * q_h + d[None, :], mask=t[:, None] < T, other=0.0)
    m = tl.full([BLOCK_T], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_T], tl.float32)
    acc = tl.zeros([BLOCK_T, D], tl.float32)
    last = t
    end = tl.minimum(S, S - T + (block + 1) * BLOCK_T)
    for start in tl.range(0, end, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        inside = s[:, None] < end
        k_tile = tl.load(k + s[:, None] * k_s + (h // G) * k_h + d[None, :], mask=inside, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * scale
        scores = tl.where(s[None, :] <= last[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp(scores - m_new[:, None])
        shrink = tl.exp(m - m_new)
        l = l * shrink + tl.sum(p, 1)
        v_tile = tl.load(v + s[:, None] * v_s + (h // G) * v_h + d[None, :], mask=inside, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_tile, input_precision="ieee")
        m = m_new
    tl.store(out + t[:, None] * out_t + h * out_h + d[None, :], acc / l[:, None], mask=t[:, None] < T)

# %% wrong: no mask
# says: also those after its own position
@triton.jit
def flash(q, k, v, out, q_t, q_h, k_s, k_h, v_s, v_h, out_t, out_h, T, S, scale,
          G: tl.constexpr, D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    block = tl.program_id(0)
    h = tl.program_id(1)
    t = block * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.arange(0, D)
    q_tile = tl.load(q + t[:, None] * q_t + h * q_h + d[None, :], mask=t[:, None] < T, other=0.0)
    m = tl.full([BLOCK_T], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_T], tl.float32)
    acc = tl.zeros([BLOCK_T, D], tl.float32)
    last = S - T + t
    end = tl.minimum(S, S - T + (block + 1) * BLOCK_T)
    for start in tl.range(0, end, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        inside = s[:, None] < end
        k_tile = tl.load(k + s[:, None] * k_s + (h // G) * k_h + d[None, :], mask=inside, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * scale
        scores = tl.where(s[None, :] < end, scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp(scores - m_new[:, None])
        shrink = tl.exp(m - m_new)
        l = l * shrink + tl.sum(p, 1)
        v_tile = tl.load(v + s[:, None] * v_s + (h // G) * v_h + d[None, :], mask=inside, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_tile, input_precision="ieee")
        m = m_new
    tl.store(out + t[:, None] * out_t + h * out_h + d[None, :], acc / l[:, None], mask=t[:, None] < T)

# %% wrong: not scaled
# says: the scores are not scaled
@triton.jit
def flash(q, k, v, out, q_t, q_h, k_s, k_h, v_s, v_h, out_t, out_h, T, S, scale,
          G: tl.constexpr, D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    block = tl.program_id(0)
    h = tl.program_id(1)
    t = block * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.arange(0, D)
    q_tile = tl.load(q + t[:, None] * q_t + h * q_h + d[None, :], mask=t[:, None] < T, other=0.0)
    m = tl.full([BLOCK_T], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_T], tl.float32)
    acc = tl.zeros([BLOCK_T, D], tl.float32)
    last = S - T + t
    end = tl.minimum(S, S - T + (block + 1) * BLOCK_T)
    for start in tl.range(0, end, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        inside = s[:, None] < end
        k_tile = tl.load(k + s[:, None] * k_s + (h // G) * k_h + d[None, :], mask=inside, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee")
        scores = tl.where(s[None, :] <= last[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp(scores - m_new[:, None])
        shrink = tl.exp(m - m_new)
        l = l * shrink + tl.sum(p, 1)
        v_tile = tl.load(v + s[:, None] * v_s + (h // G) * v_h + d[None, :], mask=inside, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_tile, input_precision="ieee")
        m = m_new
    tl.store(out + t[:, None] * out_t + h * out_h + d[None, :], acc / l[:, None], mask=t[:, None] < T)

# %% wrong: scaled twice
# says: the scores are scaled twice
@triton.jit
def flash(q, k, v, out, q_t, q_h, k_s, k_h, v_s, v_h, out_t, out_h, T, S, scale,
          G: tl.constexpr, D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    block = tl.program_id(0)
    h = tl.program_id(1)
    t = block * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.arange(0, D)
    q_tile = tl.load(q + t[:, None] * q_t + h * q_h + d[None, :], mask=t[:, None] < T, other=0.0)
    m = tl.full([BLOCK_T], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_T], tl.float32)
    acc = tl.zeros([BLOCK_T, D], tl.float32)
    last = S - T + t
    end = tl.minimum(S, S - T + (block + 1) * BLOCK_T)
    for start in tl.range(0, end, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        inside = s[:, None] < end
        k_tile = tl.load(k + s[:, None] * k_s + (h // G) * k_h + d[None, :], mask=inside, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * scale * scale
        scores = tl.where(s[None, :] <= last[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp(scores - m_new[:, None])
        shrink = tl.exp(m - m_new)
        l = l * shrink + tl.sum(p, 1)
        v_tile = tl.load(v + s[:, None] * v_s + (h // G) * v_h + d[None, :], mask=inside, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_tile, input_precision="ieee")
        m = m_new
    tl.store(out + t[:, None] * out_t + h * out_h + d[None, :], acc / l[:, None], mask=t[:, None] < T)

# %% wrong: KV heads in turn
# says: so it is h // G
@triton.jit
def flash(q, k, v, out, q_t, q_h, k_s, k_h, v_s, v_h, out_t, out_h, T, S, scale,
          G: tl.constexpr, D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    block = tl.program_id(0)
    h = tl.program_id(1)
    t = block * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.arange(0, D)
    q_tile = tl.load(q + t[:, None] * q_t + h * q_h + d[None, :], mask=t[:, None] < T, other=0.0)
    m = tl.full([BLOCK_T], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_T], tl.float32)
    acc = tl.zeros([BLOCK_T, D], tl.float32)
    last = S - T + t
    end = tl.minimum(S, S - T + (block + 1) * BLOCK_T)
    for start in tl.range(0, end, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        inside = s[:, None] < end
        k_tile = tl.load(k + s[:, None] * k_s + (h % (tl.num_programs(1) // G)) * k_h + d[None, :], mask=inside, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * scale
        scores = tl.where(s[None, :] <= last[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp(scores - m_new[:, None])
        shrink = tl.exp(m - m_new)
        l = l * shrink + tl.sum(p, 1)
        v_tile = tl.load(v + s[:, None] * v_s + (h % (tl.num_programs(1) // G)) * v_h + d[None, :], mask=inside, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_tile, input_precision="ieee")
        m = m_new
    tl.store(out + t[:, None] * out_t + h * out_h + d[None, :], acc / l[:, None], mask=t[:, None] < T)

# %% wrong: over all keys
# says: the loop goes on behind the block's last token
@triton.jit
def flash(q, k, v, out, q_t, q_h, k_s, k_h, v_s, v_h, out_t, out_h, T, S, scale,
          G: tl.constexpr, D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    block = tl.program_id(0)
    h = tl.program_id(1)
    t = block * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.arange(0, D)
    q_tile = tl.load(q + t[:, None] * q_t + h * q_h + d[None, :], mask=t[:, None] < T, other=0.0)
    m = tl.full([BLOCK_T], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_T], tl.float32)
    acc = tl.zeros([BLOCK_T, D], tl.float32)
    last = S - T + t
    end = S
    for start in tl.range(0, end, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        inside = s[:, None] < end
        k_tile = tl.load(k + s[:, None] * k_s + (h // G) * k_h + d[None, :], mask=inside, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * scale
        scores = tl.where(s[None, :] <= last[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp(scores - m_new[:, None])
        shrink = tl.exp(m - m_new)
        l = l * shrink + tl.sum(p, 1)
        v_tile = tl.load(v + s[:, None] * v_s + (h // G) * v_h + d[None, :], mask=inside, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_tile, input_precision="ieee")
        m = m_new
    tl.store(out + t[:, None] * out_t + h * out_h + d[None, :], acc / l[:, None], mask=t[:, None] < T)

# %% wrong: reads past the end
# says: places that belong to no tensor, the first at k
@triton.jit
def flash(q, k, v, out, q_t, q_h, k_s, k_h, v_s, v_h, out_t, out_h, T, S, scale,
          G: tl.constexpr, D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    block = tl.program_id(0)
    h = tl.program_id(1)
    t = block * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.arange(0, D)
    q_tile = tl.load(q + t[:, None] * q_t + h * q_h + d[None, :], mask=t[:, None] < T, other=0.0)
    m = tl.full([BLOCK_T], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_T], tl.float32)
    acc = tl.zeros([BLOCK_T, D], tl.float32)
    last = S - T + t
    end = tl.minimum(S, S - T + (block + 1) * BLOCK_T)
    for start in tl.range(0, end, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        inside = s[:, None] < end
        k_tile = tl.load(k + s[:, None] * k_s + (h // G) * k_h + d[None, :])
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * scale
        scores = tl.where(s[None, :] <= last[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp(scores - m_new[:, None])
        shrink = tl.exp(m - m_new)
        l = l * shrink + tl.sum(p, 1)
        v_tile = tl.load(v + s[:, None] * v_s + (h // G) * v_h + d[None, :])
        acc = acc * shrink[:, None] + tl.dot(p, v_tile, input_precision="ieee")
        m = m_new
    tl.store(out + t[:, None] * out_t + h * out_h + d[None, :], acc / l[:, None], mask=t[:, None] < T)

# %% wrong: the diagonal tile whole
# says: behind the block's last token are loaded; mask them with `end`
@triton.jit
def flash(q, k, v, out, q_t, q_h, k_s, k_h, v_s, v_h, out_t, out_h, T, S, scale,
          G: tl.constexpr, D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_S: tl.constexpr):
    block = tl.program_id(0)
    h = tl.program_id(1)
    t = block * BLOCK_T + tl.arange(0, BLOCK_T)
    d = tl.arange(0, D)
    q_tile = tl.load(q + t[:, None] * q_t + h * q_h + d[None, :], mask=t[:, None] < T, other=0.0)
    m = tl.full([BLOCK_T], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_T], tl.float32)
    acc = tl.zeros([BLOCK_T, D], tl.float32)
    last = S - T + t
    end = tl.minimum(S, S - T + (block + 1) * BLOCK_T)
    for start in tl.range(0, end, BLOCK_S):
        s = start + tl.arange(0, BLOCK_S)
        inside = s[:, None] < S
        k_tile = tl.load(k + s[:, None] * k_s + (h // G) * k_h + d[None, :], mask=inside, other=0.0)
        scores = tl.dot(q_tile, tl.trans(k_tile), input_precision="ieee") * scale
        scores = tl.where(s[None, :] <= last[:, None], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp(scores - m_new[:, None])
        shrink = tl.exp(m - m_new)
        l = l * shrink + tl.sum(p, 1)
        v_tile = tl.load(v + s[:, None] * v_s + (h // G) * v_h + d[None, :], mask=inside, other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_tile, input_precision="ieee")
        m = m_new
    tl.store(out + t[:, None] * out_t + h * out_h + d[None, :], acc / l[:, None], mask=t[:, None] < T)
