"""Which program of a decode launch runs on which multiprocessor, and what each of them moves: a model in plain numbers.

The kernel's grid is (KV head, sequence, split), the first one fastest. A chip hands programs out in that order, each to the
multiprocessor that is least busy; here that is the one with the fewest bytes to move so far. A multiprocessor holds as
many programs at once as its shared memory has room for. Registers, the second launch's own time and how
fast one multiprocessor can read are left out: this counts bytes, it does not predict a time.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Sequence

from kvedu.kernels.launch import Chip
from kvedu.kernels.splits import RESERVED, blocks_for, buffers_of, keys_of_splits, shared_bytes


@dataclass(frozen=True)
class Placed:
    """A program: its KV head, sequence and split, the keys it reads, where it runs, and how many ran there before it."""

    head: int
    sequence: int
    split: int
    keys: int
    processor: int
    place: int


def resident(chip: Chip, G: int, D: int, itemsize: int) -> int:
    """Decode programs that one multiprocessor holds at once, by shared memory.

    >>> resident(Chip.known(90), G=4, D=128, itemsize=2)
    3
    """
    rule = blocks_for(chip, G, G, D, itemsize)
    held = shared_bytes(D, D, itemsize, rule["block_m"], rule["block_s"], buffers_of(chip, rule["stages"], rule["block_m"]))
    return max(1, (chip.shared + RESERVED) // (held + RESERVED))


def program_bytes(keys: int, G: int, D: int, itemsize: int, split: bool) -> int:
    """Bytes that one program moves: its keys and values, its queries, and its result, in fp32 with a log-sum where it is a part."""
    return 2 * keys * D * itemsize + G * D * itemsize + (4 * G * (D + 1) if split else G * D * itemsize)


def merge_bytes(splits_used: int, splits: int, D: int, itemsize: int) -> int:
    """Bytes that the merge of one query head moves: the parts that are not empty, all log-sums, the result."""
    return 4 * splits_used * D + 4 * splits + D * itemsize


def schedule(lengths: Sequence[int], kv_heads: int, splits: int, block_s: int, processors: int, G: int, D: int, itemsize: int) -> list[Placed]:
    """Every program of the launch in the grid's order, and where it runs. Cost: O(programs · log processors)."""
    free = [(0, processor, 0) for processor in range(processors)]  # bytes so far, who, how many programs
    keys = [keys_of_splits(length, splits, block_s) for length in lengths]
    placed = []
    for split in range(splits):
        for sequence in reversed(range(len(lengths))):  # as the kernel counts its blocks
            for head in range(kv_heads):
                busy, processor, count = heapq.heappop(free)
                placed.append(Placed(head, sequence, split, keys[sequence][split], processor, count))
                busy += program_bytes(keys[sequence][split], G, D, itemsize, splits > 1)
                heapq.heappush(free, (busy, processor, count + 1))
    return placed
