"""Lab 1's exercises."""

TITLE = "What is the KV cache"
EXERCISES = ("cached_attention",)
