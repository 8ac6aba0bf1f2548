# %% right: the sequence's own table first
@triton.jit
def mended_gather(k, tables, lengths, out, k_p, k_c, table_b, J, out_b, out_s, C: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    table = tables + b * table_b
    t = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    length = tl.load(lengths + b)
    page = tl.load(table + t // C, mask=t < length, other=0).to(tl.int64)
    where = k + page[:, None] * k_p + (t % C)[:, None] * k_c + d[None, :]
    row = tl.load(where, mask=(t < length)[:, None])
    tl.store(out + b * out_b + t[:, None] * out_s + d[None, :], row, mask=(t < length)[:, None])


# %% right: a token at a time
@triton.jit
def mended_gather(k, tables, lengths, out, k_p, k_c, table_b, J, out_b, out_s, C: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    d = tl.arange(0, D)
    start = tl.program_id(1) * BLOCK
    for t in range(start, tl.minimum(start + BLOCK, tl.load(lengths + b))):
        page = tl.load(tables + b * table_b + t // C).to(tl.int64)
        tl.store(out + b * out_b + t * out_s + d, tl.load(k + page * k_p + (t % C) * k_c + d))


# %% wrong: as it was
# says: places that belong to no tensor, the first at tables
@triton.jit
def mended_gather(k, tables, lengths, out, k_p, k_c, table_b, J, out_b, out_s, C: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    t = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    inside = t < tl.load(lengths + b)
    page = tl.load(tables + b * J + t // C, mask=inside, other=0).to(tl.int64)
    row_SD = tl.load(k + (page * k_p + (t % C) * k_c)[:, None] + d[None, :], mask=inside[:, None], other=0.0)
    tl.store(out + (b * out_b + t * out_s)[:, None] + d[None, :], row_SD, mask=inside[:, None])


# %% wrong: one table for all
# says: every sequence reads the first one's pages
@triton.jit
def mended_gather(k, tables, lengths, out, k_p, k_c, table_b, J, out_b, out_s, C: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    t = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    inside = t < tl.load(lengths + b)
    page = tl.load(tables + t // C, mask=inside, other=0).to(tl.int64)
    row_SD = tl.load(k + (page * k_p + (t % C) * k_c)[:, None] + d[None, :], mask=inside[:, None], other=0.0)
    tl.store(out + (b * out_b + t * out_s)[:, None] + d[None, :], row_SD, mask=inside[:, None])


# %% wrong: no table
# says: the block table is not used
@triton.jit
def mended_gather(k, tables, lengths, out, k_p, k_c, table_b, J, out_b, out_s, C: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    t = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    inside = t < tl.load(lengths + b)
    row_SD = tl.load(k + (t // C * k_p + (t % C) * k_c)[:, None] + d[None, :], mask=inside[:, None], other=0.0)
    tl.store(out + (b * out_b + t * out_s)[:, None] + d[None, :], row_SD, mask=inside[:, None])


# %% wrong: full pages
# says: last, partly filled page are left out
@triton.jit
def mended_gather(k, tables, lengths, out, k_p, k_c, table_b, J, out_b, out_s, C: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    t = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    inside = t // C < tl.load(lengths + b) // C
    page = tl.load(tables + b * table_b + t // C, mask=inside, other=0).to(tl.int64)
    row_SD = tl.load(k + (page * k_p + (t % C) * k_c)[:, None] + d[None, :], mask=inside[:, None], other=0.0)
    tl.store(out + (b * out_b + t * out_s)[:, None] + d[None, :], row_SD, mask=inside[:, None])


# %% wrong: the store has no length
# says: the store needs the mask, too
@triton.jit
def mended_gather(k, tables, lengths, out, k_p, k_c, table_b, J, out_b, out_s, C: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    t = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    inside = t < tl.load(lengths + b)
    page = tl.load(tables + b * table_b + t // C, mask=inside, other=0).to(tl.int64)
    row_SD = tl.load(k + (page * k_p + (t % C) * k_c)[:, None] + d[None, :], mask=inside[:, None], other=0.0)
    longest = tl.load(lengths)
    for other in range(1, tl.num_programs(0)):
        longest = tl.maximum(longest, tl.load(lengths + other))
    tl.store(out + (b * out_b + t * out_s)[:, None] + d[None, :], row_SD, mask=(t < longest)[:, None])


# %% wrong: the store has no mask at all
# says: writes
@triton.jit
def mended_gather(k, tables, lengths, out, k_p, k_c, table_b, J, out_b, out_s, C: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    b = tl.program_id(0)
    t = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    d = tl.arange(0, D)
    inside = t < tl.load(lengths + b)
    page = tl.load(tables + b * table_b + t // C, mask=inside, other=0).to(tl.int64)
    row_SD = tl.load(k + (page * k_p + (t % C) * k_c)[:, None] + d[None, :], mask=inside[:, None], other=0.0)
    tl.store(out + (b * out_b + t * out_s)[:, None] + d[None, :], row_SD)
