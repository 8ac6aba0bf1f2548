"""Lab 12's numbers and codes, as they should be and as people get them wrong."""

from __future__ import annotations

import torch
from torch import Tensor


def to_codes(x_n: Tensor, bits: int) -> tuple[Tensor, float, float]:
    """Codes 0 … 2**bits - 1, scale and zero point of one group."""
    zero = x_n.min().item()
    scale = (x_n.max().item() - zero) / (2**bits - 1)
    codes = torch.zeros_like(x_n) if scale == 0 else ((x_n - zero) / scale).round()
    return codes.clamp(0, 2**bits - 1).to(torch.uint8), scale, zero


def back(codes: Tensor, scale: float, zero: float) -> Tensor:
    """Numbers from codes."""
    return codes.to(torch.float32) * scale + zero


def group_through(x: Tensor, bits: int, along: int) -> Tensor:
    """Lines of a table along one axis through codes, each with a scale of its own."""
    zero = x.amin(along, keepdim=True)
    scale = (x.amax(along, keepdim=True) - zero) / (2**bits - 1)
    safe = torch.where(scale == 0, 1.0, scale)
    return torch.where(scale == 0, zero, ((x - zero) / safe).round() * scale + zero)


def through_codes(page_CD: Tensor, bits: int, per: str) -> Tensor:
    """A page through codes: a scale for each token (a row) or each channel (a column)."""
    return group_through(page_CD, bits, 1 if per == "token" else 0)


def error_without(page_CD: Tensor, bits: int, channel: int) -> float:
    """Squared error of the other channels when one is stored apart."""
    rest = torch.cat((page_CD[:, :channel], page_CD[:, channel + 1 :]), dim=1)
    return ((through_codes(rest, bits, "token") - rest) ** 2).sum().item()


def spoiler(page_CD: Tensor, bits: int) -> int:
    """The channel without which the others come back best."""
    errors = [error_without(page_CD, bits, d) for d in range(page_CD.shape[1])]
    return errors.index(min(errors))
