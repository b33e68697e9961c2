"""Helpers of `triton_kernel`: a user's class, its checks and its operands."""
