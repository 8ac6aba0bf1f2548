"""Lab 4, challenge: the block size that costs the fewest bytes."""

from __future__ import annotations

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def cost(lengths: list[int], C: int, place_bytes: int, entry_bytes: int) -> int:
    """Bytes of places and table entries."""
    return sum(-(-n // C) for n in lengths) * (C * place_bytes + entry_bytes)


def right(lengths: list[int], sizes: list[int], place_bytes: int, entry_bytes: int) -> int:
    """The right answer."""
    return min(sorted(sizes), key=lambda C: cost(lengths, C, place_bytes, entry_bytes))


def cases(fresh: Fresh) -> list[Case]:
    """Cheap and dear entries, lengths that fill a block exactly, sizes in any order, and two that cost the same."""
    made = [
        Case("entries that cost next to nothing", ([40, 300, 1200], fresh.shuffled(SIZES), 1000, 4)),
        Case("entries as dear as 100 places", ([fresh.integer(900, 1100) for _ in range(20)], fresh.shuffled(SIZES), 10, 1000)),
        Case("entries as dear as 1,000 places", ([fresh.integer(2000, 4000) for _ in range(20)], fresh.shuffled(SIZES), 1, 1000)),
        Case("lengths of exactly 32", ([32] * 5, fresh.shuffled(SIZES), 8, 40)),
        Case("lengths of exactly 33", ([33] * 5, fresh.shuffled(SIZES), 8, 40)),
        Case("two sizes that cost the same", ([8], [8, 2, 4], 1, 0)),
        Case("the average of two lengths fits, they do not", ([15, 17], [16, 32, 8], 4, 7)),
    ]  # fmt: skip
    return made


def mean_fits(lengths: list[int], sizes: list[int], place_bytes: int, entry_bytes: int) -> int:
    """Takes all sequences to be of the average length."""
    mean = round(sum(lengths) / len(lengths))
    return right([mean] * len(lengths), sizes, place_bytes, entry_bytes)


EXERCISE = Exercise(
    title="The cheapest block size",
    read="book/04-paged-attention",
    hint="For one sequence: its number of blocks, rounded up, times what one block costs together with its entry.",
    checked="cheap and dear entries, lengths that fill blocks exactly or miss by one, ties",
    cases=cases,
    right=right,
    optional=True,
    mistakes=(
        Mistake(lambda lengths, sizes, place_bytes, entry_bytes: right(lengths, sizes, place_bytes, 0),
                "the tables cost nothing here; each block has an entry of entry_bytes"),
        Mistake(lambda lengths, sizes, place_bytes, entry_bytes: min(sorted(sizes), key=lambda C: sum(n / C for n in lengths) * (C * place_bytes + entry_bytes)),
                "blocks are not rounded up: the empty end of a last block costs as much as a full one"),
        Mistake(mean_fits, "the average length stands for all; what is empty at the end depends on each length"),
        Mistake(lambda lengths, sizes, place_bytes, entry_bytes: max(sorted(sizes), key=lambda C: -cost(lengths, C, place_bytes, entry_bytes) + C / 1e6),
                "of two sizes that cost the same the smaller one is wanted"),
    ),
)  # fmt: skip
