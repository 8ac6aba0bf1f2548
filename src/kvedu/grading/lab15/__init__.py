"""Lab 15's exercises."""

TITLE = "Sinks, RoPE, QK and OV circuits"
EXERCISES = ("places", "sink_ring", "moved", "induction_score", "ov_matrix", "spoiled")
