"""Check this machine for `gemmtune doctor`."""
