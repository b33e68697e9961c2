"""Rows for products whose batch or strides torch left open, such as the last tokens of prompts. Needs torch alone."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import isqrt

from gemmtune.engine.consumers.inductor.loader.hooks.dynamic_rows import dynamic_row
from gemmtune.engine.consumers.inductor.loader.loader_rows import ProductRow
from gemmtune.engine.consumers.inductor.loader.lowered import LoweredProduct

_STRIDE = re.compile(r"(?<=[d_][ab]=)[1-9]\d*")  # 0 is one matrix for a whole batch, and never open
_BATCH = re.compile(r"(?<=:)(\d+)(?=x\d+x)")


def as_in_table(product: LoweredProduct | str, rows: Mapping[str, Sequence[ProductRow]]) -> LoweredProduct | str:
    """Return a product with an open batch or open strides under the key of the rows that serve it.

    These are the rows of the nearest batch, up to the largest that has rows, and of the strides that are nearest to
    those seen first. Templates take both at launch, so such a row's kernel is right for all; binaries are compiled for
    their strides. Any other product is returned as it is.
    """
    if isinstance(product, str):
        return product
    if getattr(product.batch, "free_symbols", None):
        product = _at_batch(product, rows)
    return _at_strides(product, rows) if product.has_open_strides else product


def _at_batch(product: LoweredProduct, rows: Mapping[str, Sequence[ProductRow]]) -> LoweredProduct:
    """Return a product at the batch whose rows serve all batches of the graph; guard the batch if needed."""
    forms = {_BATCH.sub("", wanted) for wanted in (product.key, product.full_key)}
    found = [_BATCH.search(key) for key in rows if _BATCH.sub("", key) in forms]
    sizes = sorted({int(match[0]) for match in found if match})
    if not sizes:
        return product
    ends = [*(isqrt(one * other) for one, other in pairwise(sizes)), sizes[-1]]
    firsts = [1, *(end + 1 for end in ends)]
    spans = [ProductRow(first, end, str(size), {}) for first, end, size in zip(firsts, ends, sizes, strict=False)]
    hint = _BATCH.search(product.key)
    assert hint is not None  # every key has one
    row = dynamic_row(replace(product, m=product.batch, hint=int(hint[0])), spans)
    return product if row is None else replace(product, key=_BATCH.sub(row.template, product.key, count=1))


def _at_strides(product: LoweredProduct, rows: Mapping[str, Sequence[ProductRow]]) -> LoweredProduct:
    """Return a product with the strides that have rows and are nearest to its own."""
    for wanted in (product.full_key, product.key):
        form, strides = _STRIDE.sub("", wanted), [*map(int, _STRIDE.findall(wanted))]
        alike = [key for key, its in rows.items() if _STRIDE.sub("", key) == form and not any(r.kernel for r in its)]
        distances = {
            key: sum(abs(a - int(b)) for a, b in zip(strides, _STRIDE.findall(key), strict=True)) for key in alike
        }
        if alike:
            nearest = min(alike, key=distances.__getitem__)
            return replace(product, key=nearest.removesuffix(wanted.removeprefix(product.key)))
    return product
