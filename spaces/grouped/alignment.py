"""Alignment of the rows of a grouped product's operands, which decides how a kernel may copy them."""

from gemmtune.engine.records.gemm.terms import Layout
from gemmtune.engine.records.grouped.product import Form, Grouped
from gemmtune.engine.records.verdict import Verdict

_COPY_BYTES = 16


def strided(product: Grouped, kernel: str) -> Verdict:
    """Return whether the rows of A, B and the output are multiples of 16 B, as the kernel of this name needs them."""
    a = product.k if product.a_layout is Layout.N else product.m
    b = product.n if product.b_layout is Layout.N else product.k
    dtype, out_dtype = product.dtype, product.out_dtype
    for name, length, each in (("A", a, dtype), ("B", b, dtype), ("out", product.n, out_dtype)):
        nbytes = length * each.itemsize
        if nbytes % _COPY_BYTES:
            reason = f"rows of {name} of {nbytes} B are no multiple of the {_COPY_BYTES} B that {kernel} needs"
            return Verdict.no("alignment", reason)
    return Verdict.yes()


def cut(product: Grouped) -> Verdict:
    """Return whether rows or k are cut into groups; a batch of products is a bmm."""
    if product.form is not Form.BATCHED:
        return Verdict.yes()
    batch = f"{product.groups}x{product.m}x{product.n}x{product.k}:{product.dtype}:{product.layout}:bmm"
    return Verdict.no("form", f"groups of {product.form} are no groups of rows or of k: tune the problem {batch}")
