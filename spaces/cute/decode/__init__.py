"""Kernels of our own for products of few rows: a GEMV on CUDA cores, and a split-K kernel on tensor cores."""
