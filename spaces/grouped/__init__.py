"""Grouped products: operands with their routing, and right results."""
