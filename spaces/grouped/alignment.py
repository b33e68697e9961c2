"""Alignment of the rows of a grouped product's operands, which decides how a kernel may copy them."""

from gemmtune.engine.records.gemm.terms import Layout
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.engine.records.verdict import Verdict

_COPY_BYTES = 16


def strided(product: Grouped, kernel: str) -> Verdict:
    """Return whether the rows of A, B and the output are multiples of 16 B, as the kernel of this name needs them."""
    a = product.k if product.a_layout is Layout.N else product.m
    b = product.n if product.b_layout is Layout.N else product.k
    for name, length in (("A", a), ("B", b), ("out", product.n)):
        nbytes = length * product.dtype.itemsize
        if nbytes % _COPY_BYTES:
            reason = f"rows of {name} of {nbytes} B are no multiple of the {_COPY_BYTES} B that {kernel} needs"
            return Verdict.no("alignment", reason)
    return Verdict.yes()
