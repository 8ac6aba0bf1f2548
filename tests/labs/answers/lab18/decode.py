# %% right: powers of two
@triton.jit
def decode(q, k, v, out, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, out_b, out_h, scale,
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
        at = page * k_p + c[:, None] * k_c + head * k_k + d[None, :]
        k_CD = tl.load(k + at, mask=seen[:, None], other=0.0)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * (scale * 1.4426950408889634)
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.math.exp2(s - m_new[:, None])
        shrink = tl.math.exp2(m - m_new)
        v_CD = tl.load(v + at, mask=seen[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% right: products as sums
@triton.jit
def decode(q, k, v, out, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, out_b, out_h, scale,
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
        at = page * k_p + c[:, None] * k_c + head * k_k + d[None, :]
        k_CD = tl.load(k + at, mask=seen[:, None], other=0.0)
        s = tl.sum(q_GD[:, None, :] * k_CD[None, :, :], 2) * scale
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(v + at, mask=seen[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.sum(p[:, :, None] * v_CD[None, :, :], 1)
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% right: scaled queries, weights hidden instead of scores
@triton.jit
def decode(q, k, v, out, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, out_b, out_h, scale,
           G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b = tl.program_id(0), tl.program_id(1)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = (g < G)[:, None]
    q_GD = tl.load(q + b * q_b + (head * G + g)[:, None] * q_h + d[None, :], mask=real, other=0.0) * scale
    length = tl.load(lengths + b)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(tl.cdiv(length, C)):
        page = tl.load(tables + b * table_b + j).to(tl.int64)
        seen = j * C + c < length
        at = page * k_p + c[:, None] * k_c + head * k_k + d[None, :]
        k_CD = tl.load(k + at, mask=seen[:, None], other=0.0)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee")
        s = tl.where(seen[None, :], s, -1e30)
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(v + at, mask=seen[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% wrong: heads tiled
# says: it is h // G
@triton.jit
def decode(q, k, v, out, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, out_b, out_h, scale,
           G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b = tl.program_id(0), tl.program_id(1)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = (g < G)[:, None]
    q_GD = tl.load(q + b * q_b + (head + g * tl.num_programs(0))[:, None] * q_h + d[None, :], mask=real, other=0.0)
    length = tl.load(lengths + b)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(tl.cdiv(length, C)):
        page = tl.load(tables + b * table_b + j).to(tl.int64)
        seen = j * C + c < length
        at = page * k_p + c[:, None] * k_c + head * k_k + d[None, :]
        k_CD = tl.load(k + at, mask=seen[:, None], other=0.0)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(v + at, mask=seen[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head + g * tl.num_programs(0))[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% wrong: no scale
# says: not multiplied by `scale`
@triton.jit
def decode(q, k, v, out, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, out_b, out_h, scale,
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
        at = page * k_p + c[:, None] * k_c + head * k_k + d[None, :]
        k_CD = tl.load(k + at, mask=seen[:, None], other=0.0)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee")
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(v + at, mask=seen[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% wrong: zeros count
# says: score must be −inf
@triton.jit
def decode(q, k, v, out, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, out_b, out_h, scale,
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
        at = page * k_p + c[:, None] * k_c + head * k_k + d[None, :]
        k_CD = tl.load(k + at, mask=seen[:, None], other=0.0)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(v + at, mask=seen[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% wrong: full pages only
# says: `tl.cdiv(length, C)` pages
@triton.jit
def decode(q, k, v, out, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, out_b, out_h, scale,
           G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b = tl.program_id(0), tl.program_id(1)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = (g < G)[:, None]
    q_GD = tl.load(q + b * q_b + (head * G + g)[:, None] * q_h + d[None, :], mask=real, other=0.0)
    length = tl.load(lengths + b)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(length // C):
        page = tl.load(tables + b * table_b + j).to(tl.int64)
        seen = j * C + c < length
        at = page * k_p + c[:, None] * k_c + head * k_k + d[None, :]
        k_CD = tl.load(k + at, mask=seen[:, None], other=0.0)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(v + at, mask=seen[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% wrong: the result does not shrink
# says: the result does not
@triton.jit
def decode(q, k, v, out, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, out_b, out_h, scale,
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
        at = page * k_p + c[:, None] * k_c + head * k_k + d[None, :]
        k_CD = tl.load(k + at, mask=seen[:, None], other=0.0)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(v + at, mask=seen[:, None], other=0.0)
        acc = acc + tl.dot(p, v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% wrong: no maximum
# says: take the running maximum away
@triton.jit
def decode(q, k, v, out, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, out_b, out_h, scale,
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
        at = page * k_p + c[:, None] * k_c + head * k_k + d[None, :]
        k_CD = tl.load(k + at, mask=seen[:, None], other=0.0)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s)
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(v + at, mask=seen[:, None], other=0.0)
        acc = acc + tl.dot(p, v_CD, input_precision="ieee")
        l = l + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% wrong: one place too many
# says: a place past a sequence's end is loaded
@triton.jit
def decode(q, k, v, out, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, out_b, out_h, scale,
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
        seen = j * C + c <= length
        at = page * k_p + c[:, None] * k_c + head * k_k + d[None, :]
        k_CD = tl.load(k + at, mask=seen[:, None], other=0.0)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(v + at, mask=seen[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% wrong: no division
# says: divide by their sum at the end
@triton.jit
def decode(q, k, v, out, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, out_b, out_h, scale,
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
        at = page * k_p + c[:, None] * k_c + head * k_k + d[None, :]
        k_CD = tl.load(k + at, mask=seen[:, None], other=0.0)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(v + at, mask=seen[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc, mask=real)


# %% wrong: the table's width for its stride
# says: the first at tables
@triton.jit
def decode(q, k, v, out, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, out_b, out_h, scale,
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
        page = tl.load(tables + b * tl.cdiv(tl.load(lengths), C) + j).to(tl.int64)
        seen = j * C + c < length
        at = page * k_p + c[:, None] * k_c + head * k_k + d[None, :]
        k_CD = tl.load(k + at, mask=seen[:, None], other=0.0)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(v + at, mask=seen[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% wrong: no mask on the tokens
# says: is a mask missing
@triton.jit
def decode(q, k, v, out, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, out_b, out_h, scale,
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
        at = page * k_p + c[:, None] * k_c + head * k_k + d[None, :]
        k_CD = tl.load(k + at + C * k_c * 1000)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(v + at, mask=seen[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)


# %% wrong: each head reads for itself
# says: load each key and each value once for the whole group
@triton.jit
def decode(q, k, v, out, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, out_b, out_h, scale,
           G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b = tl.program_id(0), tl.program_id(1)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = (g < G)[:, None]
    q_GD = tl.load(q + b * q_b + (head * G + g)[:, None] * q_h + d[None, :], mask=real, other=0.0)
    length = tl.load(lengths + b)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for one in range(G - 1):
        for j in range(tl.cdiv(length, C)):
            page = tl.load(tables + b * table_b + j).to(tl.int64)
            at = page * k_p + c[:, None] * k_c + head * k_k + d[None, :]
            m = tl.maximum(m, tl.sum(tl.sum(tl.load(k + at, mask=(j * C + c < length)[:, None], other=0.0), 1), 0) * 0.0 + float("-inf"))
    for j in range(tl.cdiv(length, C)):
        page = tl.load(tables + b * table_b + j).to(tl.int64)
        seen = j * C + c < length
        at = page * k_p + c[:, None] * k_c + head * k_k + d[None, :]
        k_CD = tl.load(k + at, mask=seen[:, None], other=0.0)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(v + at, mask=seen[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    to = out + b * out_b + (head * G + g)[:, None] * out_h + d[None, :]
    tl.store(to, acc / l[:, None], mask=real)
