# %% right: by the sign bit
@triton.jit
def unpack_rows(packed, scales, out, p_n, out_n, D: tl.constexpr):
    n, d = tl.program_id(0), tl.arange(0, D)
    byte_D = tl.load(packed + n * p_n + d // 2).to(tl.int32)
    u_D = (byte_D >> (d % 2 * 4)) & 15
    code_D = (u_D ^ 8) - 8
    tl.store(out + n * out_n + d, code_D.to(tl.float32) * tl.load(scales + n))


# %% right: by remainders
@triton.jit
def unpack_rows(packed, scales, out, p_n, out_n, D: tl.constexpr):
    n, d = tl.program_id(0), tl.arange(0, D)
    byte_D = tl.load(packed + n * p_n + d // 2).to(tl.int32)
    u_D = tl.where(d % 2 == 0, byte_D % 16, byte_D // 16)
    code_D = tl.where(u_D < 8, u_D, u_D - 16)
    tl.store(out + n * out_n + d, code_D.to(tl.float32) * tl.load(scales + n))


# %% wrong: no sign
# says: the sign is lost
@triton.jit
def unpack_rows(packed, scales, out, p_n, out_n, D: tl.constexpr):
    n, d = tl.program_id(0), tl.arange(0, D)
    byte_D = tl.load(packed + n * p_n + d // 2).to(tl.int32)
    u_D = (byte_D >> (d % 2 * 4)) & 15
    code_D = u_D
    tl.store(out + n * out_n + d, code_D.to(tl.float32) * tl.load(scales + n))


# %% wrong: 8 from all
# says: 8 is taken from every code
@triton.jit
def unpack_rows(packed, scales, out, p_n, out_n, D: tl.constexpr):
    n, d = tl.program_id(0), tl.arange(0, D)
    byte_D = tl.load(packed + n * p_n + d // 2).to(tl.int32)
    u_D = (byte_D >> (d % 2 * 4)) & 15
    code_D = u_D - 8
    tl.store(out + n * out_n + d, code_D.to(tl.float32) * tl.load(scales + n))


# %% wrong: the high half first
# says: the high half of a byte comes first
@triton.jit
def unpack_rows(packed, scales, out, p_n, out_n, D: tl.constexpr):
    n, d = tl.program_id(0), tl.arange(0, D)
    byte_D = tl.load(packed + n * p_n + d // 2).to(tl.int32)
    u_D = (byte_D >> ((1 - d % 2) * 4)) & 15
    code_D = tl.where(u_D < 8, u_D, u_D - 16)
    tl.store(out + n * out_n + d, code_D.to(tl.float32) * tl.load(scales + n))


# %% wrong: low halves first
# says: the two codes of a byte are neighbors
@triton.jit
def unpack_rows(packed, scales, out, p_n, out_n, D: tl.constexpr):
    n, d = tl.program_id(0), tl.arange(0, D)
    byte_D = tl.load(packed + n * p_n + d % (D // 2)).to(tl.int32)
    u_D = (byte_D >> (d // (D // 2) * 4)) & 15
    code_D = tl.where(u_D < 8, u_D, u_D - 16)
    tl.store(out + n * out_n + d, code_D.to(tl.float32) * tl.load(scales + n))


# %% wrong: no scale
# says: not multiplied by the row's scale
@triton.jit
def unpack_rows(packed, scales, out, p_n, out_n, D: tl.constexpr):
    n, d = tl.program_id(0), tl.arange(0, D)
    byte_D = tl.load(packed + n * p_n + d // 2).to(tl.int32)
    u_D = (byte_D >> (d % 2 * 4)) & 15
    code_D = tl.where(u_D < 8, u_D, u_D - 16)
    tl.store(out + n * out_n + d, code_D.to(tl.float32))


# %% wrong: a byte for each number
# says: the first at packed
@triton.jit
def unpack_rows(packed, scales, out, p_n, out_n, D: tl.constexpr):
    n, d = tl.program_id(0), tl.arange(0, D)
    byte_D = tl.load(packed + n * p_n + d).to(tl.int32)
    u_D = (byte_D >> (d % 2 * 4)) & 15
    code_D = tl.where(u_D < 8, u_D, u_D - 16)
    tl.store(out + n * out_n + d, code_D.to(tl.float32) * tl.load(scales + n))
