"""Pruners, with one rule per file."""
