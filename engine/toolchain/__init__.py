"""Read what the machine has: GPUs, clocks, driver, toolchain and the vendor library's GEMM."""
