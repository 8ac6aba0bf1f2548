"""Lab 2's exercises."""

TITLE = "KV cache memory math"
EXERCISES = ("bytes_per_token", "models_that_show", "models_that_hide", "users_that_fit", "cache_bytes", "pack")
