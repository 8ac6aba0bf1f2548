"""The maths: one file per operation with its reference, its fast path and its cost."""
