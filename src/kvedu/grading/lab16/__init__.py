"""Graders of lab 16: FLOPs per byte, where the ridge is crossed, and two kernels that must not read a byte twice."""

TITLE = "Roofline"
EXERCISES = ("intensity", "smallest_batch", "axpy", "add_rmsnorm")
