"""Binaries of CuTe kernels in an export: how they are built, checked, and run by Inductor."""
