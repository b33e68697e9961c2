"""Grouped products of a graph as rows describe them. Needs torch alone."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.utils import convert_shape_to_inductor
from torch.fx import Node

from gemmtune.engine.consumers.inductor.epilogues.reader import PLAIN
from gemmtune.engine.consumers.inductor.loader.loader_rows import DTYPE_NAMES
from gemmtune.engine.consumers.inductor.loader.lowered import LoweredProduct, is_open
from gemmtune.engine.records.gemm.stated import layout_of, unusual_strides

GROUPED = (torch.ops.aten._grouped_mm.default, torch.ops.aten._scaled_grouped_mm.default)
"""Operators whose kernels multiply all groups in one launch."""
_FORMS = {(2, 3): "rows", (2, 2): "inner"}
"""Forms of a problem's text by the dimensions of A and B, as far as a space tunes them."""
_PREFIX = "grouped_"
_ALIGNED = 8  # elements in 16 bytes, of which rows of the output are a multiple
_UNKNOWN = 4096  # rows that stand for a number which depends on values


def grouped_product(node: Node) -> LoweredProduct | str:
    """Return the product of a call of an operator in `GROUPED`, or why no row describes it.

    Its m is the size that a program's batch decides: the total of all groups along m, or along k with `inner`.
    """
    schema: Any = node.target
    named: dict[str, Any] = dict(zip((each.name for each in schema._schema.arguments), node.args, strict=False))
    named |= node.kwargs
    if node.target is not GROUPED[0]:
        return "no space tunes grouped products with scales"
    if named.get("bias") is not None:
        return "no space tunes grouped products with a bias"
    a, b, out = (each.meta["val"] for each in (named["self"], named["mat2"], node))
    form = _FORMS.get((a.dim(), b.dim()))
    if form is None:
        return f"no space tunes grouped products of {a.dim()} by {b.dim()} dimensions"
    types = {str(each.dtype).removeprefix("torch.") for each in (a, b, out)}
    if types != {"bfloat16"}:
        return f"no space tunes grouped products of {', '.join(sorted(types))}"
    layouts = [_layout(a), _layout(b)]
    if "" in layouts:
        return "no space tunes grouped products of operands that are not dense"
    groups = out.shape[0] if form == "inner" else b.shape[0]
    rest, size = a.shape if form == "inner" else reversed(a.shape)
    m, *fixed = convert_shape_to_inductor([size, groups, b.shape[-1], rest])
    if any(map(is_open, fixed)):
        return "no space tunes grouped products whose n, k or number of groups is dynamic"
    if 0 in (m, *fixed):
        return "it is empty"
    if fixed[1] % _ALIGNED:
        return f"no space tunes grouped products whose n={fixed[1]} is no multiple of {_ALIGNED}"
    key = f"{_PREFIX}{form}:bfloat16:{''.join(layouts)}:{'x'.join(map(str, fixed))}:none:dynamic"
    return LoweredProduct(m, _hint(size), key, int(fixed[-1]), PLAIN)


def grouped_name(key: str, size: int) -> str:
    """Return the problem of a product at a size, as text that `Grouped.parse` reads; see `grouped_product`."""
    op, dtype, layout, sizes, *_ = key.split(":")
    form, (groups, n, fixed) = op.removeprefix(_PREFIX), sizes.split("x")
    m, k = (fixed, size) if form == "inner" else (size, fixed)
    return f"grouped:{form}:m{m}:g{groups}:n{n}:k{k}:{DTYPE_NAMES[dtype]}:{layout}"


def _layout(operand: torch.Tensor) -> str:
    """Return `n` for a dense operand of rows, `t` for one of columns, else an empty text."""
    size, stride = [*map(_hint, operand.shape)], [*map(_hint, operand.stride())]
    layout, lead = layout_of(size, stride)
    batch, step = (size[0], stride[0]) if len(size) > 2 else (1, None)
    is_dense = layout and unusual_strides(layout, size[-2], size[-1], lead, batch, step) == (None, None)
    return layout if is_dense else ""


def _hint(size: Any) -> int:  # noqa: ANN401 (a number, or torch's symbol)
    """Return a size, of an open one the value that torch saw first, or one in its place."""
    if isinstance(size, int):
        return size
    hint = size.node.hint
    return _UNKNOWN if hint is None else int(hint)
