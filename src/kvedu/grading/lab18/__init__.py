"""Lab 18's exercises."""

TITLE = "The paged decode kernel"
EXERCISES = ("decode_bytes", "mended_gather", "decode", "decode_split", "merge_splits")
