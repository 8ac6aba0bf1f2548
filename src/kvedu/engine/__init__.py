"""Many requests on one model: a scheduler that plans in plain numbers, and an engine that runs its plans."""
