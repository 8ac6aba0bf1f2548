"""What a smaller cache costs: prediction, divergence from the full cache, and recall, over any cache."""
