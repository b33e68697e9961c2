"""Turn a config into a number: builders, workers and the timing protocols."""
