"""The contract of each seam as a suite; `gemmtune.testing` is the public name."""
