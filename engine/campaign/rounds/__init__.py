"""Rounds of measurements besides the searches, for tables that share sizes out among kernels."""
