"""Binaries of CuTe kernels in an Inductor table: how they are checked, and run by Inductor."""
