"""Table of a user's own Triton kernels: its exporter, and the loader that production imports."""
