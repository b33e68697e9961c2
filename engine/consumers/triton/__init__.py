"""A user's own Triton kernels: a table's exporter, and the loader that production imports."""
