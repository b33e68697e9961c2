"""Grouped products: what they compute, and how rows spread over their groups."""
