"""Spaces of serving engines' Triton kernels, built from the engines' own source."""
