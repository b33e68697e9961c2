"""Pruners: one rule per file."""
