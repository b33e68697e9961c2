"""Packages that link and launch a CuTe binary."""

__all__ = ["RUNTIME_PACKAGES"]

RUNTIME_PACKAGES = ("apache-tvm-ffi", "nvidia-cutlass-dsl")
"""Names of the packages; their versions are part of each CuTe toolchain."""
