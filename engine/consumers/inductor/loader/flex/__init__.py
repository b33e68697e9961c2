"""Attention: how a graph has it, and how a table serves it."""
