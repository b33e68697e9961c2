"""Epilogues, of which no row of this table has one: each product is taken for a plain one."""

from typing import NamedTuple


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
