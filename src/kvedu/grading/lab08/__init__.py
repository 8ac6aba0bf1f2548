"""Lab 8's exercises."""

TITLE = "Latency against throughput"
EXERCISES = ("latencies", "goodput", "mean_inside", "room", "smallest_ceiling", "outage", "mended_dashboard")
