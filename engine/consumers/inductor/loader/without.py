"""Stand-ins for the parts of the loader that no row of this table needs."""

from typing import Any, NamedTuple, TypeAlias

from gemmtune.engine.tables.sealed import require_object

KernelBinary: TypeAlias = Any
"""Kernel's object file and what its launch needs."""


class ReadEpilogue(NamedTuple):
    """Finding for a product, which is not looked for an epilogue."""

    epilogue: str = ""
    """Text of the epilogue; empty."""
    nodes: frozenset[str] = frozenset()
    """Names of the graph's nodes that the epilogue computes; none."""
    reason: str = ""
    """Reason why no text describes the epilogue; empty."""


PLAIN = ReadEpilogue()
"""Finding for a product alone."""


def read_epilogue(_product: object) -> ReadEpilogue:
    """Return the finding for a product alone."""
    return PLAIN


def dynamic_row(_product: object, _rows: object) -> None:
    """Return None: no row serves a graph with a dynamic m."""


def as_in_table(product: Any, _rows: object) -> Any:  # noqa: ANN401 (a product, or why it is none)
    """Return the product as it is: no row serves open sizes or strides."""
    return product


def clusters_at_once(_gpu: int, _blocks: int) -> int:
    """Refuse: the launch of no kernel depends on it."""
    raise RuntimeError("this loader runs no such kernels: use the one that was exported beside the table")


def unread_bias(_alpha: float) -> dict[str, Any]:
    """Return no keywords: no row is for a beta of 0."""
    return {}


def parse_kernels(value: object) -> dict[str, KernelBinary]:
    """Return no kernel; refuse a table that has one."""
    if require_object("kernels", value):
        raise ValueError("kernels: this loader runs none: use the one that was exported beside the table")
    return {}


class Binaries:
    """CuTe kernels, of which there is none: each row runs what torch makes."""

    lacking = ""

    def __init__(self, *_: object, **__: object) -> None:
        """Register no kernel."""

    def serve(self, _product: object, row: Any, *_: object) -> tuple[None, Any, str]:  # noqa: ANN401 (a row, if any)
        """Return no choices, the row, and no reason to run another."""
        return None, row, ""
