"""Time kernels with CUDA graphs, events and the energy counter."""
