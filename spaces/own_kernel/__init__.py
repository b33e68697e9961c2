"""Build of a user's own Triton kernel for a GPU that need not be present."""
