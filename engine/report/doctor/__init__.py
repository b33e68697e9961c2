"""Check a machine for `gemmtune doctor`."""
