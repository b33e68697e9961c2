"""Grouped products, as those of a mixture of experts: how a graph has them, and how a table serves them."""
