"""Contracts that plug-ins implement, one per file, and the registry that finds plug-ins by name."""
