"""Models that samplers fit to measurements."""
