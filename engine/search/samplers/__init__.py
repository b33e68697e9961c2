"""Samplers: one algorithm per file."""
