"""Figures that answer: one script each, the same in the book's static pages and in a notebook."""

from kvedu.viz.notebook import show
from kvedu.viz.still import Still, still

__all__ = ["Still", "show", "still"]
