# %% right: scales in the softmax's base
@triton.jit
def decode_codes(q, kc, ks, vc, vs, out, tables, lengths, q_b, q_h, c_p, c_c, c_k, s_p, s_c, s_k, table_b, out_b, out_h, scale,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b = tl.program_id(0), tl.program_id(1)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = (g < G)[:, None]
    q_GD = tl.load(q + b * q_b + (head * G + g)[:, None] * q_h + d[None, :], mask=real, other=0.0)
    length = tl.load(lengths + b)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(tl.cdiv(length, C)):
        page = tl.load(tables + b * table_b + j).to(tl.int64)
        seen = j * C + c < length
        at = page * c_p + c[:, None] * c_c + head * c_k + d[None, :]
        at_scale = page * s_p + c * s_c + head * s_k
        k_scale = tl.load(ks + at_scale, mask=seen, other=0.0)
        v_scale = tl.load(vs + at_scale, mask=seen, other=0.0)
        k_CD = tl.load(kc + at, mask=seen[:, None], other=0).to(tl.float32)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * (scale * 1.4426950408889634) * k_scale[None, :]
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.math.exp2(s - m_new[:, None])
        shrink = tl.math.exp2(m - m_new)
        v_CD = tl.load(vc + at, mask=seen[:, None], other=0).to(tl.float32)
        acc = acc * shrink[:, None] + tl.dot(p * v_scale[None, :], v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% right: keys scaled as numbers, with one scale a token
@triton.jit
def decode_codes(q, kc, ks, vc, vs, out, tables, lengths, q_b, q_h, c_p, c_c, c_k, s_p, s_c, s_k, table_b, out_b, out_h, scale,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b = tl.program_id(0), tl.program_id(1)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = (g < G)[:, None]
    q_GD = tl.load(q + b * q_b + (head * G + g)[:, None] * q_h + d[None, :], mask=real, other=0.0)
    length = tl.load(lengths + b)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(tl.cdiv(length, C)):
        page = tl.load(tables + b * table_b + j).to(tl.int64)
        seen = j * C + c < length
        at = page * c_p + c[:, None] * c_c + head * c_k + d[None, :]
        at_scale = page * s_p + c * s_c + head * s_k
        k_scale = tl.load(ks + at_scale, mask=seen, other=0.0)
        v_scale = tl.load(vs + at_scale, mask=seen, other=0.0)
        k_CD = tl.load(kc + at, mask=seen[:, None], other=0).to(tl.float32) * k_scale[:, None]
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(vc + at, mask=seen[:, None], other=0).to(tl.float32)
        acc = acc * shrink[:, None] + tl.dot(p * v_scale[None, :], v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% wrong: keys without scales
# says: not multiplied by the keys' scales
@triton.jit
def decode_codes(q, kc, ks, vc, vs, out, tables, lengths, q_b, q_h, c_p, c_c, c_k, s_p, s_c, s_k, table_b, out_b, out_h, scale,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b = tl.program_id(0), tl.program_id(1)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = (g < G)[:, None]
    q_GD = tl.load(q + b * q_b + (head * G + g)[:, None] * q_h + d[None, :], mask=real, other=0.0)
    length = tl.load(lengths + b)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(tl.cdiv(length, C)):
        page = tl.load(tables + b * table_b + j).to(tl.int64)
        seen = j * C + c < length
        at = page * c_p + c[:, None] * c_c + head * c_k + d[None, :]
        at_scale = page * s_p + c * s_c + head * s_k
        k_scale = tl.load(ks + at_scale, mask=seen, other=0.0)
        v_scale = tl.load(vs + at_scale, mask=seen, other=0.0)
        k_CD = tl.load(kc + at, mask=seen[:, None], other=0).to(tl.float32)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(vc + at, mask=seen[:, None], other=0).to(tl.float32)
        acc = acc * shrink[:, None] + tl.dot(p * v_scale[None, :], v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% wrong: values without scales
# says: the values' scales are missing
@triton.jit
def decode_codes(q, kc, ks, vc, vs, out, tables, lengths, q_b, q_h, c_p, c_c, c_k, s_p, s_c, s_k, table_b, out_b, out_h, scale,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b = tl.program_id(0), tl.program_id(1)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = (g < G)[:, None]
    q_GD = tl.load(q + b * q_b + (head * G + g)[:, None] * q_h + d[None, :], mask=real, other=0.0)
    length = tl.load(lengths + b)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(tl.cdiv(length, C)):
        page = tl.load(tables + b * table_b + j).to(tl.int64)
        seen = j * C + c < length
        at = page * c_p + c[:, None] * c_c + head * c_k + d[None, :]
        at_scale = page * s_p + c * s_c + head * s_k
        k_scale = tl.load(ks + at_scale, mask=seen, other=0.0)
        v_scale = tl.load(vs + at_scale, mask=seen, other=0.0)
        k_CD = tl.load(kc + at, mask=seen[:, None], other=0).to(tl.float32)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale * k_scale[None, :]
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(vc + at, mask=seen[:, None], other=0).to(tl.float32)
        acc = acc * shrink[:, None] + tl.dot(p, v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% wrong: the first head's scales
# says: the first head's scales
@triton.jit
def decode_codes(q, kc, ks, vc, vs, out, tables, lengths, q_b, q_h, c_p, c_c, c_k, s_p, s_c, s_k, table_b, out_b, out_h, scale,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b = tl.program_id(0), tl.program_id(1)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = (g < G)[:, None]
    q_GD = tl.load(q + b * q_b + (head * G + g)[:, None] * q_h + d[None, :], mask=real, other=0.0)
    length = tl.load(lengths + b)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(tl.cdiv(length, C)):
        page = tl.load(tables + b * table_b + j).to(tl.int64)
        seen = j * C + c < length
        at = page * c_p + c[:, None] * c_c + head * c_k + d[None, :]
        at_scale = page * s_p + c * s_c
        k_scale = tl.load(ks + at_scale, mask=seen, other=0.0)
        v_scale = tl.load(vs + at_scale, mask=seen, other=0.0)
        k_CD = tl.load(kc + at, mask=seen[:, None], other=0).to(tl.float32)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale * k_scale[None, :]
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(vc + at, mask=seen[:, None], other=0).to(tl.float32)
        acc = acc * shrink[:, None] + tl.dot(p * v_scale[None, :], v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% wrong: keys' scales twice
# says: the values are multiplied by
@triton.jit
def decode_codes(q, kc, ks, vc, vs, out, tables, lengths, q_b, q_h, c_p, c_c, c_k, s_p, s_c, s_k, table_b, out_b, out_h, scale,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b = tl.program_id(0), tl.program_id(1)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = (g < G)[:, None]
    q_GD = tl.load(q + b * q_b + (head * G + g)[:, None] * q_h + d[None, :], mask=real, other=0.0)
    length = tl.load(lengths + b)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(tl.cdiv(length, C)):
        page = tl.load(tables + b * table_b + j).to(tl.int64)
        seen = j * C + c < length
        at = page * c_p + c[:, None] * c_c + head * c_k + d[None, :]
        at_scale = page * s_p + c * s_c + head * s_k
        k_scale = tl.load(ks + at_scale, mask=seen, other=0.0)
        v_scale = tl.load(ks + at_scale, mask=seen, other=0.0)
        k_CD = tl.load(kc + at, mask=seen[:, None], other=0).to(tl.float32)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale * k_scale[None, :]
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(vc + at, mask=seen[:, None], other=0).to(tl.float32)
        acc = acc * shrink[:, None] + tl.dot(p * v_scale[None, :], v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% wrong: scales in the sum
# says: not to the softmax
@triton.jit
def decode_codes(q, kc, ks, vc, vs, out, tables, lengths, q_b, q_h, c_p, c_c, c_k, s_p, s_c, s_k, table_b, out_b, out_h, scale,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b = tl.program_id(0), tl.program_id(1)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = (g < G)[:, None]
    q_GD = tl.load(q + b * q_b + (head * G + g)[:, None] * q_h + d[None, :], mask=real, other=0.0)
    length = tl.load(lengths + b)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(tl.cdiv(length, C)):
        page = tl.load(tables + b * table_b + j).to(tl.int64)
        seen = j * C + c < length
        at = page * c_p + c[:, None] * c_c + head * c_k + d[None, :]
        at_scale = page * s_p + c * s_c + head * s_k
        k_scale = tl.load(ks + at_scale, mask=seen, other=0.0)
        v_scale = tl.load(vs + at_scale, mask=seen, other=0.0)
        k_CD = tl.load(kc + at, mask=seen[:, None], other=0).to(tl.float32)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale * k_scale[None, :]
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None]) * v_scale[None, :]
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(vc + at, mask=seen[:, None], other=0).to(tl.float32)
        acc = acc * shrink[:, None] + tl.dot(p, v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% wrong: no masks
# says: their scale is whatever was there
@triton.jit
def decode_codes(q, kc, ks, vc, vs, out, tables, lengths, q_b, q_h, c_p, c_c, c_k, s_p, s_c, s_k, table_b, out_b, out_h, scale,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b = tl.program_id(0), tl.program_id(1)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = (g < G)[:, None]
    q_GD = tl.load(q + b * q_b + (head * G + g)[:, None] * q_h + d[None, :], mask=real, other=0.0)
    length = tl.load(lengths + b)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(tl.cdiv(length, C)):
        page = tl.load(tables + b * table_b + j).to(tl.int64)
        seen = c < C
        at = page * c_p + c[:, None] * c_c + head * c_k + d[None, :]
        at_scale = page * s_p + c * s_c + head * s_k
        k_scale = tl.load(ks + at_scale, mask=seen, other=0.0)
        v_scale = tl.load(vs + at_scale, mask=seen, other=0.0)
        k_CD = tl.load(kc + at, mask=seen[:, None], other=0).to(tl.float32)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale * k_scale[None, :]
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(vc + at, mask=seen[:, None], other=0).to(tl.float32)
        acc = acc * shrink[:, None] + tl.dot(p * v_scale[None, :], v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% wrong: a scale for each number
# says: one scale for each token, not one for each number
@triton.jit
def decode_codes(q, kc, ks, vc, vs, out, tables, lengths, q_b, q_h, c_p, c_c, c_k, s_p, s_c, s_k, table_b, out_b, out_h, scale,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b = tl.program_id(0), tl.program_id(1)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = (g < G)[:, None]
    q_GD = tl.load(q + b * q_b + (head * G + g)[:, None] * q_h + d[None, :], mask=real, other=0.0)
    length = tl.load(lengths + b)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(tl.cdiv(length, C)):
        page = tl.load(tables + b * table_b + j).to(tl.int64)
        seen = j * C + c < length
        at = page * c_p + c[:, None] * c_c + head * c_k + d[None, :]
        at_scale = page * s_p + c * s_c + head * s_k
        k_scale = tl.load(ks + at_scale, mask=seen, other=0.0)
        wide = tl.load(ks + at_scale[:, None] + d[None, :] * 0, mask=seen[:, None], other=0.0)
        v_scale = tl.load(vs + at_scale, mask=seen, other=0.0)
        k_CD = tl.load(kc + at, mask=seen[:, None], other=0).to(tl.float32) * wide
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(vc + at, mask=seen[:, None], other=0).to(tl.float32)
        acc = acc * shrink[:, None] + tl.dot(p * v_scale[None, :], v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% wrong: codes without a mask
# says: and none past a sequence's end
@triton.jit
def decode_codes(q, kc, ks, vc, vs, out, tables, lengths, q_b, q_h, c_p, c_c, c_k, s_p, s_c, s_k, table_b, out_b, out_h, scale,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b = tl.program_id(0), tl.program_id(1)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = (g < G)[:, None]
    q_GD = tl.load(q + b * q_b + (head * G + g)[:, None] * q_h + d[None, :], mask=real, other=0.0)
    length = tl.load(lengths + b)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(tl.cdiv(length, C)):
        page = tl.load(tables + b * table_b + j).to(tl.int64)
        seen = j * C + c < length
        at = page * c_p + c[:, None] * c_c + head * c_k + d[None, :]
        at_scale = page * s_p + c * s_c + head * s_k
        k_scale = tl.load(ks + at_scale, mask=seen, other=0.0)
        v_scale = tl.load(vs + at_scale, mask=seen, other=0.0)
        k_CD = tl.load(kc + at).to(tl.float32)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale * k_scale[None, :]
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(vc + at).to(tl.float32)
        acc = acc * shrink[:, None] + tl.dot(p * v_scale[None, :], v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)
