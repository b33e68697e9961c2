"""Content of a table's kernels, of which this table has none."""

from typing import Any, TypeAlias

from gemmtune.engine.tables.sealed import require_object

KernelBinary: TypeAlias = Any
"""Kernel's object file and what its launch needs."""


def parse_kernels(value: object) -> dict[str, KernelBinary]:
    """Return no kernel; refuse a table that has one."""
    if require_object("kernels", value):
        raise ValueError("kernels: this loader runs none: use the one that was exported beside the table")
    return {}
