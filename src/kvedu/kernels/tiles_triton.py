"""What the attention kernels share: which rows a program owns, one step of the online softmax, how a result is stored."""

import triton
import triton.language as tl


@triton.jit
def find_rows(rows, block, B, TOKENS: tl.constexpr, ONE_EACH: tl.constexpr, FIELDS: tl.constexpr):
    """Which sequence a block of queries belongs to, and where: (sequence, first row, new, committed, first token).

    ``rows`` has FIELDS numbers a sequence, the first three as in ``PagedLayout``.

    Sequence b's blocks are numbered from ``first[b] // TOKENS + b``: never overlapping, and known without a sum over the
    sequences before it, so that nobody has to tell the grid how long each of them is. Blocks beyond a
    sequence's end have a first token past ``new``. With one token each, block and sequence are the same.
    """
    if ONE_EACH:
        b = block
    else:
        low, high = 0, B - 1
        while low < high:
            middle = (low + high + 1) // 2
            if tl.load(rows + FIELDS * middle) // TOKENS + middle <= block:
                low = middle
            else:
                high = middle - 1
        b = low
    first = tl.load(rows + FIELDS * b).to(tl.int64)
    new = tl.load(rows + FIELDS * b + 1).to(tl.int32)
    old = tl.load(rows + FIELDS * b + 2).to(tl.int32)
    start = (block - b - first // TOKENS).to(tl.int32) * TOKENS
    if ONE_EACH:
        start = start * 0
    return b, first, new, old, start


@triton.jit
def online(s, scale, m, l):
    """Take a tile of scores (hidden ones -inf) into the running maximum and sum: (weights, shrink, m, l).

    Weights are powers of two of scores times ``scale``, which is above 0 and has log2(e) in it; m is a maximum of bare scores, so that
    multiplying and subtracting are one instruction. Maxima are subtracted first: where one stays, shrink is 1 to the last bit, however
    products are rounded. A row that has seen nothing yet keeps the maximum -inf; 0 is subtracted instead, so no inf - inf arises.
    """
    m_new = tl.maximum(m, tl.max(s, 1))
    safe = tl.where(m_new == float("-inf"), 0.0, m_new)
    p = tl.math.exp2(s * scale - (safe * scale)[:, None])
    shrink = tl.math.exp2((m - safe) * scale)
    return p, shrink, m_new, l * shrink + tl.sum(p, 1)


@triton.jit
def log_sum(m, l):
    """Base-2 logarithm of a row's sum of weights; -inf for a row that saw nothing."""
    return tl.where(l == 0.0, float("-inf"), m + tl.math.log2(tl.where(l == 0.0, 1.0, l)))
