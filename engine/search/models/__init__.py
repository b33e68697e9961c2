"""Models that samplers learn from measurements."""
