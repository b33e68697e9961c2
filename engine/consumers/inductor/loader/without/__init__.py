"""Modules that stand in an export for the parts that no row of its table needs."""
