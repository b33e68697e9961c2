"""Rows of views for products whose strides torch left open, such as the last tokens of prompts. Needs torch alone."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gemmtune.engine.consumers.inductor.loader.loader_rows import ProductRow
from gemmtune.engine.consumers.inductor.loader.lowered import LoweredProduct

_STRIDE = re.compile(r"(?<=[d_][ab]=)[1-9]\d*")  # 0 is one matrix for a whole batch, and never open


def as_in_table(product: LoweredProduct | str, rows: Mapping[str, Sequence[ProductRow]]) -> LoweredProduct | str:
    """Return a product with open strides under the key of the rows whose strides are nearest to those seen first.

    Templates take strides at launch, so such a row's kernel is right for all; binaries are compiled for theirs. Any
    other product is returned as it is.
    """
    if isinstance(product, str) or not product.has_open_strides:
        return product
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
