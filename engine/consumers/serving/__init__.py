"""Serving engines: their tuned files read, audited, and written from a gemmtune table."""
