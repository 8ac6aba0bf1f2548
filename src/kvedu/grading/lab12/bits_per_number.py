"""Lab 12, exercise 1: bits per number, scales and zero points included."""

from __future__ import annotations

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh


def right(bits: int, group: int, symmetric: bool, scale_bits: int = 16) -> float:
    """Codes, and the group's share of a scale and perhaps a zero point."""
    return bits + scale_bits * (1 if symmetric else 2) / group


def cases(fresh: Fresh) -> list[Case]:
    """The usual formats, with and without a zero point, and drawn ones."""
    drawn = [
        Case(f"{bits} bits, groups of {group}, {'symmetric' if symmetric else 'asymmetric'}", (bits, group, symmetric, size))
        for bits, group, symmetric, size in [
            (fresh.choice((2, 4, 8)), fresh.choice((24, 48, 80, 128)), symmetric, fresh.choice((8, 16, 32)))
            for symmetric in (True, False, False)
        ]
    ]
    return [
        Case("4 bits, groups of 32, asymmetric", (4, 32, False, 16)),
        Case("4 bits, groups of 32, symmetric", (4, 32, True, 16)),
        Case("2 bits, groups of 1, asymmetric", (2, 1, False, 16)),
        Case("8 bits, groups of 64, scales in 32 bits", (8, 64, True, 32)),
        *drawn,
    ]


EXERCISE = Exercise(
    title="Bits per number",
    read="book/12-quantizing-the-cache",
    hint="A group of n numbers stores n codes and one scale, and one zero point if it is asymmetric. Count its bits and divide by n.",
    checked="seven formats: 2, 4 and 8 bits, groups from 1 to 128, with and without zero points, scales of 8, 16 and 32 bits",
    cases=cases,
    right=right,
    mistakes=(
        Mistake(lambda bits, group, symmetric, scale_bits=16: float(bits), "scales and zero points are stored too, and are not counted here"),
        Mistake(lambda bits, group, symmetric, scale_bits=16: bits + scale_bits / group, "an asymmetric group stores a zero point beside its scale"),
        Mistake(lambda bits, group, symmetric, scale_bits=16: float(bits + scale_bits * (1 if symmetric else 2)), "the whole group shares a scale, so a number pays its share of it only"),
        Mistake(lambda bits, group, symmetric, scale_bits=16: bits + 16 * (1 if symmetric else 2) / group, "scales have `scale_bits` bits, which are not always 16"),
    ),
)  # fmt: skip
