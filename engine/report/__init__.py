"""Report progress and results to people and programs."""
