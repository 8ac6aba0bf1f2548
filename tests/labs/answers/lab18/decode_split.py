# %% right: a while loop
@triton.jit
def decode_split(q, k, v, parts, logs, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, p_b, p_h, p_s, l_b, l_h, scale, splits,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = g < G
    h = head * G + g
    q_GD = tl.load(q + b * q_b + h[:, None] * q_h + d[None, :], mask=real[:, None], other=0.0)
    length = tl.load(lengths + b)
    pages = tl.cdiv(length, C)
    share = tl.cdiv(pages, splits)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    j = split * share
    while j < tl.minimum((split + 1) * share, pages):
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
        j += 1
    safe = tl.where(l == 0.0, 1.0, l)
    tl.store(parts + b * p_b + h[:, None] * p_h + split * p_s + d[None, :], acc / safe[:, None], mask=real[:, None])
    tl.store(logs + b * l_b + h * l_h + split, m + tl.log(safe), mask=real)


# %% right: every page, others hidden
@triton.jit
def decode_split(q, k, v, parts, logs, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, p_b, p_h, p_s, l_b, l_h, scale, splits,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = g < G
    h = head * G + g
    q_GD = tl.load(q + b * q_b + h[:, None] * q_h + d[None, :], mask=real[:, None], other=0.0)
    length = tl.load(lengths + b)
    pages = tl.cdiv(length, C)
    share = tl.cdiv(pages, splits)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(split * share, split * share + share):
        page = tl.load(tables + b * table_b + j, mask=j < pages, other=0).to(tl.int64)
        seen = j * C + c < length
        page = tl.where(j < pages, page, 0)
        at = page * k_p + c[:, None] * k_c + head * k_k + d[None, :]
        k_CD = tl.load(k + at, mask=seen[:, None], other=0.0)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(tl.maximum(m, tl.max(s, 1)), -1e30)
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(v + at, mask=seen[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    safe = tl.where(l == 0.0, 1.0, l)
    tl.store(parts + b * p_b + h[:, None] * p_h + split * p_s + d[None, :], acc / safe[:, None], mask=real[:, None])
    tl.store(logs + b * l_b + h * l_h + split, tl.where(l == 0.0, float("-inf"), m + tl.log(safe)), mask=real)


# %% wrong: shares rounded down
# says: shares are rounded down
@triton.jit
def decode_split(q, k, v, parts, logs, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, p_b, p_h, p_s, l_b, l_h, scale, splits,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = g < G
    h = head * G + g
    q_GD = tl.load(q + b * q_b + h[:, None] * q_h + d[None, :], mask=real[:, None], other=0.0)
    length = tl.load(lengths + b)
    pages = tl.cdiv(length, C)
    share = pages // splits
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(split * share, tl.minimum((split + 1) * share, pages)):
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
    safe = tl.where(l == 0.0, 1.0, l)
    tl.store(parts + b * p_b + h[:, None] * p_h + split * p_s + d[None, :], acc / safe[:, None], mask=real[:, None])
    tl.store(logs + b * l_b + h * l_h + split, m + tl.log(safe), mask=real)


# %% wrong: 0 / 0
# says: leaves 0 / 0
@triton.jit
def decode_split(q, k, v, parts, logs, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, p_b, p_h, p_s, l_b, l_h, scale, splits,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = g < G
    h = head * G + g
    q_GD = tl.load(q + b * q_b + h[:, None] * q_h + d[None, :], mask=real[:, None], other=0.0)
    length = tl.load(lengths + b)
    pages = tl.cdiv(length, C)
    share = tl.cdiv(pages, splits)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(split * share, tl.minimum((split + 1) * share, pages)):
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
    safe = tl.where(l == 0.0, 1.0, l)
    tl.store(parts + b * p_b + h[:, None] * p_h + split * p_s + d[None, :], acc / l[:, None], mask=real[:, None])
    tl.store(logs + b * l_b + h * l_h + split, m + tl.log(safe), mask=real)


# %% wrong: not normalized
# says: not divided by its sum
@triton.jit
def decode_split(q, k, v, parts, logs, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, p_b, p_h, p_s, l_b, l_h, scale, splits,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = g < G
    h = head * G + g
    q_GD = tl.load(q + b * q_b + h[:, None] * q_h + d[None, :], mask=real[:, None], other=0.0)
    length = tl.load(lengths + b)
    pages = tl.cdiv(length, C)
    share = tl.cdiv(pages, splits)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(split * share, tl.minimum((split + 1) * share, pages)):
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
    safe = tl.where(l == 0.0, 1.0, l)
    tl.store(parts + b * p_b + h[:, None] * p_h + split * p_s + d[None, :], acc, mask=real[:, None])
    tl.store(logs + b * l_b + h * l_h + split, m + tl.log(safe), mask=real)


# %% wrong: the sum alone
# says: m + log(l)
@triton.jit
def decode_split(q, k, v, parts, logs, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, p_b, p_h, p_s, l_b, l_h, scale, splits,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = g < G
    h = head * G + g
    q_GD = tl.load(q + b * q_b + h[:, None] * q_h + d[None, :], mask=real[:, None], other=0.0)
    length = tl.load(lengths + b)
    pages = tl.cdiv(length, C)
    share = tl.cdiv(pages, splits)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(split * share, tl.minimum((split + 1) * share, pages)):
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
    safe = tl.where(l == 0.0, 1.0, l)
    tl.store(parts + b * p_b + h[:, None] * p_h + split * p_s + d[None, :], acc / safe[:, None], mask=real[:, None])
    tl.store(logs + b * l_b + h * l_h + split, tl.where(l == 0.0, float("-inf"), tl.log(safe)), mask=real)


# %% wrong: the maximum alone
# says: equal maxima may weigh differently
@triton.jit
def decode_split(q, k, v, parts, logs, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, p_b, p_h, p_s, l_b, l_h, scale, splits,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = g < G
    h = head * G + g
    q_GD = tl.load(q + b * q_b + h[:, None] * q_h + d[None, :], mask=real[:, None], other=0.0)
    length = tl.load(lengths + b)
    pages = tl.cdiv(length, C)
    share = tl.cdiv(pages, splits)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(split * share, tl.minimum((split + 1) * share, pages)):
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
    safe = tl.where(l == 0.0, 1.0, l)
    tl.store(parts + b * p_b + h[:, None] * p_h + split * p_s + d[None, :], acc / safe[:, None], mask=real[:, None])
    tl.store(logs + b * l_b + h * l_h + split, m, mask=real)


# %% wrong: past the last page
# says: the first at tables
@triton.jit
def decode_split(q, k, v, parts, logs, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, p_b, p_h, p_s, l_b, l_h, scale, splits,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = g < G
    h = head * G + g
    q_GD = tl.load(q + b * q_b + h[:, None] * q_h + d[None, :], mask=real[:, None], other=0.0)
    length = tl.load(lengths + b)
    pages = tl.cdiv(length, C)
    share = tl.cdiv(pages, splits)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(split * share, (split + 1) * share + 20):
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
    safe = tl.where(l == 0.0, 1.0, l)
    tl.store(parts + b * p_b + h[:, None] * p_h + split * p_s + d[None, :], acc / safe[:, None], mask=real[:, None])
    tl.store(logs + b * l_b + h * l_h + split, m + tl.log(safe), mask=real)


# %% wrong: all pages in every split
# says: a split walks over its own pages only
@triton.jit
def decode_split(q, k, v, parts, logs, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, p_b, p_h, p_s, l_b, l_h, scale, splits,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = g < G
    h = head * G + g
    q_GD = tl.load(q + b * q_b + h[:, None] * q_h + d[None, :], mask=real[:, None], other=0.0)
    length = tl.load(lengths + b)
    pages = tl.cdiv(length, C)
    share = tl.cdiv(pages, splits)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(pages):
        page = tl.load(tables + b * table_b + j, mask=j < pages, other=0).to(tl.int64)
        seen = j * C + c < length
        page = tl.where(j < pages, page, 0)
        at = page * k_p + c[:, None] * k_c + head * k_k + d[None, :]
        k_CD = tl.load(k + at, mask=seen[:, None], other=0.0)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale
        s = tl.where((seen & (j // share == split))[None, :], s, float("-inf"))
        m_new = tl.maximum(tl.maximum(m, tl.max(s, 1)), -1e30)
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(v + at, mask=seen[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    safe = tl.where(l == 0.0, 1.0, l)
    tl.store(parts + b * p_b + h[:, None] * p_h + split * p_s + d[None, :], acc / safe[:, None], mask=real[:, None])
    tl.store(logs + b * l_b + h * l_h + split, tl.where(l == 0.0, float("-inf"), m + tl.log(safe)), mask=real)


# %% wrong: keys loaded twice
# says: loads each key once
@triton.jit
def decode_split(q, k, v, parts, logs, tables, lengths, q_b, q_h, k_p, k_c, k_k, table_b, p_b, p_h, p_s, l_b, l_h, scale, splits,
                 G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, b, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    g, d, c = tl.arange(0, GP), tl.arange(0, D), tl.arange(0, C)
    real = g < G
    h = head * G + g
    q_GD = tl.load(q + b * q_b + h[:, None] * q_h + d[None, :], mask=real[:, None], other=0.0)
    length = tl.load(lengths + b)
    pages = tl.cdiv(length, C)
    share = tl.cdiv(pages, splits)
    m = tl.full([GP], float("-inf"), tl.float32)
    l = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for j in range(split * share, split * share + share):
        page = tl.load(tables + b * table_b + j, mask=j < pages, other=0).to(tl.int64)
        seen = j * C + c < length
        page = tl.where(j < pages, page, 0)
        at = page * k_p + c[:, None] * k_c + head * k_k + d[None, :]
        k_CD = tl.load(k + at, mask=seen[:, None], other=0.0)
        k_CD = tl.load(k + at, mask=seen[:, None], other=0.0)
        s = tl.dot(q_GD, tl.trans(k_CD), input_precision="ieee") * scale
        s = tl.where(seen[None, :], s, float("-inf"))
        m_new = tl.maximum(tl.maximum(m, tl.max(s, 1)), -1e30)
        p = tl.exp(s - m_new[:, None])
        shrink = tl.exp(m - m_new)
        v_CD = tl.load(v + at, mask=seen[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(p, v_CD, input_precision="ieee")
        l = l * shrink + tl.sum(p, 1)
        m = m_new
    safe = tl.where(l == 0.0, 1.0, l)
    tl.store(parts + b * p_b + h[:, None] * p_h + split * p_s + d[None, :], acc / safe[:, None], mask=real[:, None])
    tl.store(logs + b * l_b + h * l_h + split, tl.where(l == 0.0, float("-inf"), m + tl.log(safe)), mask=real)
