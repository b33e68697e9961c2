"""QuACK's GEMM: rules, tiles, building and launching."""
