"""One tensor of a checkpoint, and which of its rows go into a parameter of the model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """One tensor of a checkpoint: its Hugging Face name and the shape it must have; of its rows all, or these in this order."""

    name: str
    shape: Shape
    rows: tuple[int, ...] | None = None

    @property
    def made(self) -> Shape:
        """Shape of what it gives."""
        return self.shape if self.rows is None else (len(self.rows), *self.shape[1:])

    def of(self, tensor: Tensor) -> Tensor:
        """Its rows of the tensor; the tensor itself if it takes all."""
        return tensor if self.rows is None else tensor[torch.tensor(self.rows)]
