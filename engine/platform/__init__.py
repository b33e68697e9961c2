"""Information about the machine: GPUs, clocks, driver, toolchain and the vendor library's GEMM."""
