"""Lab 20's exercises."""

TITLE = "Graphs and launch overhead"
EXERCISES = ("finish", "rungs", "load", "write_turned")
