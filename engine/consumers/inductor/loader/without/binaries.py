"""Rows of CuTe kernels, of which this table has none."""

from typing import TypeVar

_Row = TypeVar("_Row")


class Binaries:
    """CuTe kernels of a table without one."""

    lacking = ""
    """Reasons why kernels cannot run; part of every compile cache key."""

    def __init__(self, *_: object, **__: object) -> None:
        """Register no kernel: the table has none."""

    def serve(self, _product: object, row: _Row, *_: object) -> tuple[None, _Row, str]:
        """Return no choices, the row, and no reason to run another."""
        return None, row, ""
