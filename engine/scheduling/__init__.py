"""Decide which task gets the next batch, and when a search ends."""
