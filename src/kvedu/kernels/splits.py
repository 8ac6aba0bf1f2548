"""Block sizes and splits of the attention kernels, by rule: plain numbers, so that plans, figures and tests ask one function."""

from __future__ import annotations

import math

from kvedu.kernels.launch import Chip, power_of_two

RESERVED = 1024
"""Bytes of shared memory that CUDA keeps for each program, from capability 8.0 on; a program's pages' numbers and sums take no more."""


def blocks_for(chip: Chip, rows: float, G: int, D: int, itemsize: int, tables: bool = True) -> dict[str, int]:
    """Block sizes by rule: rows of a block by how many there are, tiles by what shared memory and registers hold.

    ``tables``: keys are found through block tables, not in one page a sequence.
    """
    wide, exact, old = power_of_two(D) > 128, itemsize == 4, chip.capability == 75
    most = 16 if exact and wide or old else 32 if exact else 128 if chip.capability and chip.wgmma and not wide else 64
    least = 1 if old else 16  # rows of a tensor core's tile; 7.5 has none that Triton uses, and wastes none
    block_m = max(least, power_of_two(G), min(most, power_of_two(math.ceil(rows))))
    block_s = 16 if exact else 32 if old else 64
    if block_m <= 32 and not exact and not old:
        block_s = 128 if power_of_two(D) <= 64 else 64
    elif D > 64 and not chip.wgmma:  # without wgmma both operands and the result live in registers
        block_s = min(block_s, 32)
    step = 2 if tables and chip.stages > 1 else 1
    stages = chip.stages if exact else 1 + step * (chip.stages - 1)

    def held() -> int:
        return needed(D, itemsize, block_m, block_s, buffers_of(chip, stages, block_m, tables)) + RESERVED

    if block_m <= 32 and stages > step and 2 * held() > chip.shared + RESERVED:  # rather two programs with less: while one begins or ends, one loads
        stages -= step
    while stages > 1 and held() > chip.shared:
        stages -= step
    return {"block_m": block_m, "block_s": block_s, "warps": 8 if wide and not exact or block_m >= 128 and D > 64 else 4, "stages": stages}


def buffers_of(chip: Chip, stages: int, block_m: int, tables: bool = True) -> int:
    """Tiles of K, and of V, that Triton keeps room for.

    A tile is loaded so many passes of the loop before it is used; with block tables the passes are shared out between a page's number
    and its rows: 5 stages are two passes each, 3 or 4 are one, and then a program never computes while it loads. Hopper's products
    read shared memory while the next pass begins, which takes one buffer more.
    """
    return max(1, (stages - 1) // (2 if tables else 1)) + (chip.capability > 0 and chip.wgmma and block_m >= 64 and stages > 1)


def splits_for(chip: Chip, programs: int, keys: int, block_s: int) -> int:
    """Splits that bring a chip as near to four programs a multiprocessor as they can; none has less than four tiles of keys, none is empty.

    >>> splits_for(Chip.known(90), programs=8, keys=32_768, block_s=64), splits_for(Chip.known(90), 512, 4096, 64)
    (64, 1)
    """
    wanted = (8 * chip.processors + programs) // (2 * max(programs, 1))
    tiles = max(1, -(-keys // block_s))
    share = -(-tiles // max(1, min(wanted, keys // (4 * block_s), 128)))
    return -(-tiles // share)


def splits_in_rounds(chip: Chip, programs: int, keys: int, block_s: int, resident: int) -> int:
    """The fewest splits whose programs fill nine tenths of whole rounds of ``resident`` programs a multiprocessor; tiles as in ``splits_for``.

    For a kernel that computes nearly as long as it reads: what few programs of a last round then lack, the memory's speed does not make up.

    >>> splits_in_rounds(Chip.known(90), 8, 32_768, 128, resident=2), splits_in_rounds(Chip.known(90), 256, 4096, 128, 2)
    (32, 1)
    """
    room, tiles = chip.processors * resident, max(1, -(-keys // block_s))
    found, filled = 1, 0.0
    for splits in range(1, max(1, min(keys // (4 * block_s), 128)) + 1):
        whole = room * -(-programs * splits // room)
        if -(-tiles // -(-tiles // splits)) == splits and programs * splits > filled * whole:
            found, filled = splits, programs * splits / whole
        if filled >= 0.9 or programs >= 2 * room:
            break
    return found


def keys_of_splits(keys: int, splits: int, block_s: int) -> list[int]:
    """Keys of each split: whole tiles, equal shares rounded up, so that the last ones may be short or empty.

    >>> keys_of_splits(300, 4, 64)
    [128, 128, 44, 0]
    """
    share = -(-(-(-keys // splits)) // block_s) * block_s
    return [max(0, min(share, keys - split * share)) for split in range(splits)]


def padded(D: int) -> int:
    """Elements of a head's row in a tile: a power of two, and no fewer than a tensor core's product takes in one go.

    >>> padded(80), padded(8)
    (128, 16)
    """
    return max(16, power_of_two(D))


def needed(D: int, itemsize: int, block_m: int, block_s: int, stages: int) -> int:
    """Shared memory that must be there: tiles, and the weights on their way from one product to the other."""
    return shared_bytes(D, D, itemsize, block_m, block_s, stages) + itemsize * block_m * block_s


def shared_bytes(D: int, DV: int, itemsize: int, block_m: int, block_s: int, stages: int) -> int:
    """Shared memory of a program, in bytes: its queries, and tiles of K and V in ``stages`` buffers."""
    return itemsize * (block_m * padded(D) + max(stages, 1) * block_s * (padded(D) + padded(DV)))
