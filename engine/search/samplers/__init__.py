"""Samplers, with one algorithm per file."""
