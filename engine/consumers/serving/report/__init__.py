"""Reports of `gemmtune check`."""
