"""Lab 7's exercises."""

TITLE = "Continuous batching"
EXERCISES = ("wasted_slots", "steps_ratio", "plan_step", "unfair_line", "mended_server", "budget_for")
