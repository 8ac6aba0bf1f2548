# %% right: times the inverse
@triton.jit
def code_rows(x, codes, scales, back, x_n, x_k, c_n, c_k, s_n, b_n, b_k, D: tl.constexpr):
    n, head, d = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    x_D = tl.load(x + n * x_n + head * x_k + d)
    scale = tl.max(tl.abs(x_D), 0) / 127.0
    most = tl.max(tl.abs(x_D), 0)
    ratio_D = x_D * (127.0 / tl.where(most == 0.0, 1.0, most))
    code_D = tl.floor(ratio_D + 0.5)
    tl.store(codes + n * c_n + head * c_k + d, code_D.to(tl.int8))
    tl.store(scales + n * s_n + head, scale)
    tl.store(back + n * b_n + head * b_k + d, code_D * scale)


# %% right: signs apart
@triton.jit
def code_rows(x, codes, scales, back, x_n, x_k, c_n, c_k, s_n, b_n, b_k, D: tl.constexpr):
    n, head, d = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    x_D = tl.load(x + n * x_n + head * x_k + d)
    scale = tl.max(tl.abs(x_D), 0) / 127.0
    ratio_D = x_D / tl.where(scale == 0.0, 1.0, scale)
    size_D = tl.floor(tl.abs(ratio_D) + 0.5)
    code_D = tl.where(ratio_D < 0.0, -size_D, size_D)
    tl.store(codes + n * c_n + head * c_k + d, code_D.to(tl.int8))
    tl.store(scales + n * s_n + head, scale)
    tl.store(back + n * b_n + head * b_k + d, code_D * scale)


# %% wrong: cut off
# says: what stands after the point is cut off
@triton.jit
def code_rows(x, codes, scales, back, x_n, x_k, c_n, c_k, s_n, b_n, b_k, D: tl.constexpr):
    n, head, d = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    x_D = tl.load(x + n * x_n + head * x_k + d)
    scale = tl.max(tl.abs(x_D), 0) / 127.0
    ratio_D = x_D / tl.where(scale == 0.0, 1.0, scale)
    code_D = ratio_D.to(tl.int32).to(tl.float32)
    tl.store(codes + n * c_n + head * c_k + d, code_D.to(tl.int8))
    tl.store(scales + n * s_n + head, scale)
    tl.store(back + n * b_n + head * b_k + d, code_D * scale)


# %% wrong: no magnitude
# says: may be that of a negative one
@triton.jit
def code_rows(x, codes, scales, back, x_n, x_k, c_n, c_k, s_n, b_n, b_k, D: tl.constexpr):
    n, head, d = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    x_D = tl.load(x + n * x_n + head * x_k + d)
    scale = tl.max(x_D, 0) / 127.0
    ratio_D = x_D / tl.where(scale == 0.0, 1.0, scale)
    code_D = tl.floor(ratio_D + 0.5)
    tl.store(codes + n * c_n + head * c_k + d, code_D.to(tl.int32).to(tl.int8))
    tl.store(scales + n * s_n + head, scale)
    tl.store(back + n * b_n + head * b_k + d, code_D * scale)


# %% wrong: divided by a scale of 0
# says: 0 / 0 is no number
@triton.jit
def code_rows(x, codes, scales, back, x_n, x_k, c_n, c_k, s_n, b_n, b_k, D: tl.constexpr):
    n, head, d = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    x_D = tl.load(x + n * x_n + head * x_k + d)
    scale = tl.max(tl.abs(x_D), 0) / 127.0
    ratio_D = x_D / scale
    code_D = tl.floor(ratio_D + 0.5)
    tl.store(codes + n * c_n + head * c_k + d, code_D.to(tl.int8))
    tl.store(scales + n * s_n + head, scale)
    tl.store(back + n * b_n + head * b_k + d, code_D * scale)


# %% wrong: 128
# says: in 8 bits that is −128
@triton.jit
def code_rows(x, codes, scales, back, x_n, x_k, c_n, c_k, s_n, b_n, b_k, D: tl.constexpr):
    n, head, d = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    x_D = tl.load(x + n * x_n + head * x_k + d)
    scale = tl.max(tl.abs(x_D), 0) / 128.0
    ratio_D = x_D / tl.where(scale == 0.0, 1.0, scale)
    code_D = tl.floor(ratio_D + 0.5)
    tl.store(codes + n * c_n + head * c_k + d, code_D.to(tl.int32).to(tl.int8))
    tl.store(scales + n * s_n + head, scale)
    tl.store(back + n * b_n + head * b_k + d, code_D * scale)


# %% wrong: the inverse stored
# says: a number is its code *times* the scale
@triton.jit
def code_rows(x, codes, scales, back, x_n, x_k, c_n, c_k, s_n, b_n, b_k, D: tl.constexpr):
    n, head, d = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    x_D = tl.load(x + n * x_n + head * x_k + d)
    scale = tl.max(tl.abs(x_D), 0) / 127.0
    ratio_D = x_D / tl.where(scale == 0.0, 1.0, scale)
    code_D = tl.floor(ratio_D + 0.5)
    tl.store(codes + n * c_n + head * c_k + d, code_D.to(tl.int8))
    tl.store(scales + n * s_n + head, tl.where(scale == 0.0, 0.0, 1.0 / tl.where(scale == 0.0, 1.0, scale)))
    tl.store(back + n * b_n + head * b_k + d, code_D * scale)


# %% wrong: rows as if nothing lay between them
# says: the first at x
@triton.jit
def code_rows(x, codes, scales, back, x_n, x_k, c_n, c_k, s_n, b_n, b_k, D: tl.constexpr):
    n, head, d = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    x_D = tl.load(x + (n * tl.num_programs(1) + head) * D + d)
    scale = tl.max(tl.abs(x_D), 0) / 127.0
    ratio_D = x_D / tl.where(scale == 0.0, 1.0, scale)
    code_D = tl.floor(ratio_D + 0.5)
    tl.store(codes + n * c_n + head * c_k + d, code_D.to(tl.int8))
    tl.store(scales + n * s_n + head, scale)
    tl.store(back + n * b_n + head * b_k + d, code_D * scale)
