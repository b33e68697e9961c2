"""A user's own Triton kernels: the kind of workload, building and launching."""
