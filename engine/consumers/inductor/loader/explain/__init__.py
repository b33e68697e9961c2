"""Modules that serve no product: an export has them as `gemmtune_report`."""
