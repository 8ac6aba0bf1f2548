"""Lab 5's exercises."""

TITLE = "Prefix caching"
EXERCISES = ("page_keys", "find_blocks", "match_length", "insert", "stale_keys", "mended_pool", "serving_order")
