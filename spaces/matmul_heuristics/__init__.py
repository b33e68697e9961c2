"""Estimates of nvMatmulHeuristics, NVIDIA's analytic model of GEMM kernels."""
