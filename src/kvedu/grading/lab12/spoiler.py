"""Lab 12, exercise 5: the channel that spoils a page."""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.lab12._codes import spoiler, through_codes


def largest_number(page_CD: Tensor, bits: int) -> int:
    """Where the largest number stands."""
    return int(page_CD.abs().amax(0).argmax())


def largest_variance(page_CD: Tensor, bits: int) -> int:
    """The channel that varies most."""
    return int(page_CD.var(0, unbiased=False).argmax())


def worst_itself(page_CD: Tensor, bits: int) -> int:
    """The channel that comes back worst, per token."""
    return int(((through_codes(page_CD, bits, "token") - page_CD) ** 2).sum(0).argmax())


def with_itself(page_CD: Tensor, bits: int) -> int:
    """Sets the channel to zero instead of taking it out: zero need not be inside the range."""
    errors = []
    for d in range(page_CD.shape[1]):
        other = page_CD.clone()
        other[:, d] = 0.0
        errors.append(((through_codes(other, bits, "token") - other) ** 2).sum().item())
    return errors.index(min(errors))


def best_kept(page_CD: Tensor, bits: int) -> int:
    """The largest error instead of the smallest."""
    errors = [((through_codes(rest, bits, "token") - rest) ** 2).sum().item() for rest in (_without(page_CD, d) for d in range(page_CD.shape[1]))]
    return errors.index(max(errors))


def _without(page_CD: Tensor, channel: int) -> Tensor:
    return torch.cat((page_CD[:, :channel], page_CD[:, channel + 1 :]), dim=1)


def cases(fresh: Fresh) -> list[Case]:
    """A large constant beside noise; one far off but rarely; all far from zero; one that sits still where the others are far."""
    tokens, channels = 48, 16

    def noise() -> Tensor:
        return 0.5 * fresh.normal(tokens, channels)

    places = fresh.shuffled(range(channels))
    steady = noise()
    steady[:, places[0]] += 8  # large in every token
    steady[:, places[1]] *= 4  # varies more, spoils less
    once = noise()
    once[:, places[2]] += 5
    once[7, places[3]] = 30.0  # the largest number, in one token
    far = noise() + 20
    far[:, places[4]] -= 14  # the smallest numbers of all spoil it
    below = noise() - 9
    below[:, places[5]] = 0.1 * fresh.normal(tokens)  # next to nothing, where all others are far from it
    wide = 0.5 * fresh.normal(24, 40)
    wide[:, 21] -= 6
    return [
        Case("one channel is large in every token", (steady, 4)),
        Case("one number is the largest, one channel spoils", (once, 4)),
        Case("all far from zero, one nearer", (far, 4)),
        Case("all far from zero, one near it", (below, 2)),
        Case("24 tokens, 40 channels", (wide, 4)),
    ]


EXERCISE = Exercise(
    title="The channel that spoils a page",
    read="book/12-quantizing-the-cache",
    hint="Take each channel out in turn, code the others per token, and measure their error. Which one do they do best without?",
    checked="five pages: large, small, rare and steady channels, near zero and far from it",
    cases=cases,
    right=spoiler,
    mistakes=(
        Mistake(largest_number, "the channel of the largest number is taken; a number that is large in one token spoils that token only, and where all are large it is the small one that stretches the range"),
        Mistake(largest_variance, "the channel that varies most is taken; one that is large in every token varies little and stretches every token's range"),
        Mistake(worst_itself, "the channel with the largest error of its own is taken; ask instead what the others lose by it"),
        Mistake(with_itself, "the channel is set to zero instead of taken out, and where numbers are far from zero that stretches the range even more"),
        Mistake(best_kept, "the channel is found without which the others do worst; look for the smallest error"),
    ),
    seconds=20,
)  # fmt: skip
