"""Lab 12's exercises."""

TITLE = "Quantizing the cache"
EXERCISES = ("bits_per_number", "to_codes", "pack_pairs", "unpack_pairs", "through_codes", "spoiler", "mended_tail")
