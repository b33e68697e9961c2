"""How a config becomes a number: builders, workers, the timing protocol."""
