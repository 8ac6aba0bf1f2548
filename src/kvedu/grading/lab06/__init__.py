"""Lab 6's exercises."""

TITLE = "Speculative decoding"
EXERCISES = ("accept", "emitted", "lookup", "tree_mask", "tree_positions", "first_stale", "mended_draft", "best_tree")
