"""Lab 13's exercises."""

TITLE = "Choosing a strategy"
EXERCISES = ("kept", "fair_attention", "absorbed_scores", "absorbed_output", "choose", "my_score")
