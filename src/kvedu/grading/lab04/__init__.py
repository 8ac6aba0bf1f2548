"""Lab 4's exercises."""

TITLE = "Paged attention"
EXERCISES = ("slot_mapping", "block_due", "block_allocator", "make_own", "audit", "mended_allocator", "best_block_size")
