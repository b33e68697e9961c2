"""Reports of `gemmtune audit`."""
