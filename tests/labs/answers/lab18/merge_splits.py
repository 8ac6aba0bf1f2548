# %% right: a loop over the splits
@triton.jit
def merge_splits(parts, logs, out, p_b, p_h, p_s, l_b, l_h, out_b, out_h, splits, D: tl.constexpr, SP: tl.constexpr):
    h, b, d = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    top = tl.load(logs + b * l_b + h * l_h)
    for s in range(1, splits):
        top = tl.maximum(top, tl.load(logs + b * l_b + h * l_h + s))
    acc = tl.zeros([D], tl.float32)
    total = top * 0.0
    for s in range(splits):
        weight = tl.exp(tl.load(logs + b * l_b + h * l_h + s) - top)
        part = tl.where(weight > 0.0, tl.load(parts + b * p_b + h * p_h + s * p_s + d), 0.0)
        acc += weight * part
        total += weight
    tl.store(out + b * out_b + h * out_h + d, acc / total)


# %% right: by the log of all
@triton.jit
def merge_splits(parts, logs, out, p_b, p_h, p_s, l_b, l_h, out_b, out_h, splits, D: tl.constexpr, SP: tl.constexpr):
    h, b = tl.program_id(0), tl.program_id(1)
    s, d = tl.arange(0, SP), tl.arange(0, D)
    log_S = tl.load(logs + b * l_b + h * l_h + s, mask=s < splits, other=float("-inf"))
    top = tl.max(log_S, 0)
    weight_S = tl.exp(log_S - top - tl.log(tl.sum(tl.exp(log_S - top), 0)))
    at = b * p_b + h * p_h + s[:, None] * p_s + d[None, :]
    part_SD = tl.load(parts + at, mask=(weight_S > 0.0)[:, None], other=0.0)
    out_D = tl.sum(part_SD * weight_S[:, None], 0)
    tl.store(out + b * out_b + h * out_h + d, out_D)


# %% wrong: the mean
# says: the parts are averaged
@triton.jit
def merge_splits(parts, logs, out, p_b, p_h, p_s, l_b, l_h, out_b, out_h, splits, D: tl.constexpr, SP: tl.constexpr):
    h, b = tl.program_id(0), tl.program_id(1)
    s, d = tl.arange(0, SP), tl.arange(0, D)
    log_S = tl.load(logs + b * l_b + h * l_h + s, mask=s < splits, other=float("-inf"))
    weight_S = tl.exp(log_S - tl.max(log_S, 0))
    at = b * p_b + h * p_h + s[:, None] * p_s + d[None, :]
    part_SD = tl.load(parts + at, mask=(weight_S > 0.0)[:, None], other=0.0)
    out_D = tl.sum(part_SD, 0) / tl.sum(tl.where(weight_S > 0.0, 1.0, 0.0), 0)
    tl.store(out + b * out_b + h * out_h + d, out_D)


# %% wrong: empty parts are read
# says: an empty part is read
@triton.jit
def merge_splits(parts, logs, out, p_b, p_h, p_s, l_b, l_h, out_b, out_h, splits, D: tl.constexpr, SP: tl.constexpr):
    h, b = tl.program_id(0), tl.program_id(1)
    s, d = tl.arange(0, SP), tl.arange(0, D)
    log_S = tl.load(logs + b * l_b + h * l_h + s, mask=s < splits, other=float("-inf"))
    weight_S = tl.exp(log_S - tl.max(log_S, 0))
    at = b * p_b + h * p_h + s[:, None] * p_s + d[None, :]
    part_SD = tl.load(parts + at, mask=(s < splits)[:, None], other=0.0)
    out_D = tl.sum(part_SD * weight_S[:, None], 0) / tl.sum(weight_S, 0)
    tl.store(out + b * out_b + h * out_h + d, out_D)


# %% wrong: no maximum
# says: take the largest away
@triton.jit
def merge_splits(parts, logs, out, p_b, p_h, p_s, l_b, l_h, out_b, out_h, splits, D: tl.constexpr, SP: tl.constexpr):
    h, b = tl.program_id(0), tl.program_id(1)
    s, d = tl.arange(0, SP), tl.arange(0, D)
    log_S = tl.load(logs + b * l_b + h * l_h + s, mask=s < splits, other=float("-inf"))
    weight_S = tl.exp(log_S)
    at = b * p_b + h * p_h + s[:, None] * p_s + d[None, :]
    part_SD = tl.load(parts + at, mask=(weight_S > 0.0)[:, None], other=0.0)
    out_D = tl.sum(part_SD * weight_S[:, None], 0) / tl.sum(weight_S, 0)
    tl.store(out + b * out_b + h * out_h + d, out_D)


# %% wrong: not divided
# says: divide by their sum
@triton.jit
def merge_splits(parts, logs, out, p_b, p_h, p_s, l_b, l_h, out_b, out_h, splits, D: tl.constexpr, SP: tl.constexpr):
    h, b = tl.program_id(0), tl.program_id(1)
    s, d = tl.arange(0, SP), tl.arange(0, D)
    log_S = tl.load(logs + b * l_b + h * l_h + s, mask=s < splits, other=float("-inf"))
    weight_S = tl.exp(log_S - tl.max(log_S, 0))
    at = b * p_b + h * p_h + s[:, None] * p_s + d[None, :]
    part_SD = tl.load(parts + at, mask=(weight_S > 0.0)[:, None], other=0.0)
    out_D = tl.sum(part_SD * weight_S[:, None], 0)
    tl.store(out + b * out_b + h * out_h + d, out_D)


# %% wrong: no mask on the log-sums
# says: the first at logs
@triton.jit
def merge_splits(parts, logs, out, p_b, p_h, p_s, l_b, l_h, out_b, out_h, splits, D: tl.constexpr, SP: tl.constexpr):
    h, b = tl.program_id(0), tl.program_id(1)
    s, d = tl.arange(0, SP), tl.arange(0, D)
    log_S = tl.load(logs + b * l_b + h * l_h + s)
    weight_S = tl.exp(log_S - tl.max(log_S, 0))
    at = b * p_b + h * p_h + s[:, None] * p_s + d[None, :]
    part_SD = tl.load(parts + at, mask=(weight_S > 0.0)[:, None], other=0.0)
    out_D = tl.sum(part_SD * weight_S[:, None], 0) / tl.sum(weight_S, 0)
    tl.store(out + b * out_b + h * out_h + d, out_D)
