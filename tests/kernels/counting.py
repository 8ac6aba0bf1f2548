"""Count what a kernel loads, stores and multiplies, by watching Triton's interpreter."""

from kvedu.kernels.watch import watching as counting

__all__ = ["counting"]
