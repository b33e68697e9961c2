"""Triton kernels built from their source for an absent GPU, and launched through the CUDA driver."""
