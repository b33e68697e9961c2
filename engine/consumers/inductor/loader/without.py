"""Stand-ins for the parts of the loader that no row of this table needs."""

from collections import namedtuple
from collections.abc import Callable
from typing import Any, TypeAlias

KernelBinary: TypeAlias = Any
"""Kernel's object file and what its launch needs."""
LeadingScales: TypeAlias = Any
"""Scales of a product of 8-bit operands."""
SCALED: tuple[str, ...] = ()
"""Operators with scales, of which none is looked for an epilogue."""
FLEX_TEMPLATES: dict[str, Any] = {}
"""Templates of attention, of which no row is."""


ReadEpilogue = namedtuple("ReadEpilogue", "epilogue nodes reason outputs", defaults=("", frozenset(), "", ()))
"""Finding for a product, which is not looked for an epilogue."""
PLAIN = ReadEpilogue()
"""Finding for a product alone."""


def _nothing(*_: object) -> Any:  # noqa: ANN401 (None, in the place of any type)
    """Do nothing, and return None."""


def _unchanged(first: Any, *_: object) -> Any:  # noqa: ANN401 (any type)
    """Return the first argument."""
    return first


def _refuse(*_: object) -> Any:  # noqa: ANN401 (never returns)
    """Refuse a table that needs a part."""
    raise ValueError("this loader lacks a part that the table needs: use the one that was exported beside the table")


parse_kernels = _refuse  # of a table with kernels
require_templates = _refuse  # of a batch-invariant table
clusters_at_once = _refuse  # of a table with kernels whose launch depends on them
read_epilogue = _nothing  # no row's kernel computes one
Binaries = _nothing  # no row runs one
dynamic_row = _nothing  # no row serves a graph with a dynamic m
as_in_table = _unchanged  # no row serves open sizes or strides
leading_scales, quantised_product = _nothing, _nothing  # no row serves products of 8-bit operands
serve_grouped, grouped_call, serve_flex = _nothing, _nothing, _nothing  # or grouped ones, or attention
GENERATED: tuple[str, ...] = ()
serve_generated, parse_generated = _nothing, _nothing  # or kernels between them
with_whole_bias, with_matrices, leave_out_bias = _unchanged, _unchanged, _nothing  # no row has a bias or scales


def bias_of_product(kernel_inputs: Any) -> tuple[str, dict[str, Any] | str]:  # noqa: ANN401 (Inductor's)
    """Return the bias of a product, which has no row, as a report names it; without one, why there is no row."""
    try:
        from gemmtune.engine.consumers.inductor.loader.explain.notes import bias_of_product as named
    except ImportError:
        return "", "no row of this table has a bias"
    return named(kernel_inputs)


def unread_bias(_alpha: float) -> dict[str, Any]:
    """Return no keywords: no row is for a beta of 0."""
    return {}


def picked(content: bytes, _device: str | None) -> tuple[bytes, str]:
    """Return the file as it is: it has one table."""
    return content, ""


def row_of(product: Any, find: Callable[[Any], Any]) -> tuple[Any, Any]:  # noqa: ANN401 (any types)
    """Return a product with what a table has of it."""
    return product, find(product)


every_m, unstrided = _unchanged, _unchanged  # the table is not batch-invariant
