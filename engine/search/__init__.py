"""Samplers and pruners, which decide on the next configs of a search."""
