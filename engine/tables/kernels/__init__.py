"""Binaries of kernels in an export: how they are built, packed and checked."""
