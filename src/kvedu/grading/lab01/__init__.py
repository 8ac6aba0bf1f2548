"""Lab 1's exercises."""

TITLE = "What is the KV cache"
EXERCISES = (
    "cached_attention",
    "rows_without",
    "rows_with",
    "pairs_with",
    "exponents",
    "first_wrong_length",
    "mended_cache",
    "rows_for",
)
