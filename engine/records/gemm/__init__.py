"""GEMM problems: their sizes, types and layouts, and their text form."""
