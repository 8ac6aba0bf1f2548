"""Lab 12, exercise 4: a page through codes, with a scale for each token or for each channel."""

from __future__ import annotations

import torch
from torch import Tensor

from kvedu.grading.exercise import Case, Exercise, Mistake
from kvedu.grading.fresh import Fresh
from kvedu.grading.lab12._codes import group_through, through_codes


def swapped(page_CD: Tensor, bits: int, per: str) -> Tensor:
    """Token and channel confused."""
    return through_codes(page_CD, bits, "channel" if per == "token" else "token")


def one_scale(page_CD: Tensor, bits: int, per: str) -> Tensor:
    """One scale for all."""
    return group_through(page_CD.flatten(), bits, 0).view_as(page_CD)


def symmetric(page_CD: Tensor, bits: int, per: str) -> Tensor:
    """No zero point."""
    along = 1 if per == "token" else 0
    scale = page_CD.abs().amax(along, keepdim=True) / (2 ** (bits - 1) - 1)
    return torch.where(scale == 0, 0.0, (page_CD / torch.where(scale == 0, 1.0, scale)).round() * scale)


def shared_zero(page_CD: Tensor, bits: int, per: str) -> Tensor:
    """A scale for each line, but one zero point for the page."""
    along = 1 if per == "token" else 0
    zero = page_CD.min()
    scale = (page_CD.amax(along, keepdim=True) - zero) / (2**bits - 1)
    return torch.where(scale == 0, zero, ((page_CD - zero) / torch.where(scale == 0, 1.0, scale)).round() * scale + zero)


def page(fresh: Fresh, tokens: int, channels: int) -> Tensor:
    """Noise, with channels of different sizes and one that stands out."""
    return fresh.normal(tokens, channels) * (1 + fresh.normal(channels).abs()) + 6 * torch.eye(channels)[fresh.integer(0, channels - 1)]


def cases(fresh: Fresh) -> list[Case]:
    """Pages that are not square, both ways, all widths; a channel of zeros; one token."""
    dead = page(fresh, 16, 24)
    dead[:, 3] = 0.0
    return [
        Case("16 tokens, 24 channels, per token", (page(fresh, 16, 24), 4, "token")),
        Case("16 tokens, 24 channels, per channel", (page(fresh, 16, 24), 4, "channel")),
        Case("9 tokens, 64 channels, per channel, 2 bits", (page(fresh, 9, 64), 2, "channel")),
        Case("32 tokens, 5 channels, per token, 8 bits", (page(fresh, 32, 5), 8, "token")),
        Case("a channel of zeros, per channel", (dead, 4, "channel")),
        Case("one token, per channel", (page(fresh, 1, 8), 4, "channel")),
    ]


EXERCISE = Exercise(
    title="A page through codes",
    read="book/12-quantizing-the-cache",
    hint="A row is a token, a column a channel. `page.amin(dim=1, keepdim=True)` is a zero point for each token.",
    checked="six pages of 1 to 32 tokens and 5 to 64 channels, both ways, in 2, 4 and 8 bits, with a channel of zeros",
    cases=cases,
    right=through_codes,
    mistakes=(
        Mistake(swapped, "per token and per channel have changed places: a token's numbers are a row"),
        Mistake(one_scale, "the whole page shares one scale; every token, or every channel, has its own"),
        Mistake(symmetric, "there is no zero point: the codes count from the lowest number of each row or column"),
        Mistake(shared_zero, "each line has a scale of its own, but all share the page's lowest number as zero point"),
    ),
    tolerance=1e-4,
)
