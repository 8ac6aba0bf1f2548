"""Where keys and values live between steps: one contract, many layouts."""
