"""Grouped products of a graph as rows describe them. Needs torch alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._inductor.utils import convert_shape_to_inductor
from torch.fx import Node

from gemmtune.engine.records.gemm.stated import layout_of, unusual_strides
from gemmtune.engine.records.grouped.served import GENERATIONS, LAYOUTS

_SCALED = torch.ops.aten._scaled_grouped_mm.default
_SECOND = getattr(getattr(torch.ops.aten, "_scaled_grouped_mm_v2", None), "default", None)
"""Operator of `torch.nn.functional.scaled_grouped_mm`, with lists of scales, of what they cover and of their order."""
LOWERED = (torch.ops.aten._grouped_mm.default, _SCALED)
"""Operators that Inductor lowers."""
GROUPED = (*LOWERED, *filter(None, (_SECOND,)))
"""Operators whose kernels multiply all groups in one launch."""
SCALES = ("scale_a", "scale_b")
"""Names of the scales of e4m3 in the operator's schema, in the order in which kernels take them."""
_FORMS = {(2, 3): "rows", (2, 2): "inner"}
"""Forms of a problem's text by the dimensions of A and B, as far as rows serve them."""
_PER_ROW = {
    **dict.fromkeys(("recipe_a", "recipe_b"), ([1],)),  # RowWise of torch.nn.functional.ScalingType
    **dict.fromkeys(("swizzle_a", "swizzle_b"), ([], [0])),  # NO_SWIZZLE of SwizzleType
    "contraction_dim": ([],),
}
"""Values with which the second operator computes what the first one does."""
_ALIGNED = 8  # elements in 16 bytes, of which rows of the output are a multiple
_UNKNOWN = 4096  # rows that stand for a number which depends on values


class GroupedProduct(NamedTuple):
    """Grouped product that a row may describe."""

    key: str
    """Table's key of all products that differ in m alone; see `problem_name`. Products of e4m3 have scales."""
    m: Any
    """Total of all groups along m, or along k with `inner`: a number or an expression."""
    hint: int
    """Value of m that torch saw first."""


def grouped_product(node: Node) -> GroupedProduct | str:
    """Return the product of a call of an operator in `GROUPED`, or why no row describes it."""
    named = operands_of(node.target, node.args, node.kwargs)
    a, b, out = (each.meta["val"] for each in (named["self"], named["mat2"], node))
    unserved = f"a library's kernel, for no row serves grouped products {[*a.shape]}×{[*b.shape]}"
    if named.get("bias") is not None:
        return f"{unserved} with a bias"
    if (device := out.device).type != "cuda" or torch.cuda.get_device_capability(device)[0] not in GENERATIONS:
        return f"{unserved} on {torch.cuda.get_device_name(device) if device.type == 'cuda' else 'the CPU'}"
    form = _FORMS.get((a.dim(), b.dim()))
    if form is None:
        way = "; torch.bmm computes it, and has rows" * (a.dim() == b.dim() and a.dtype is torch.bfloat16)
        return f"{unserved} of {a.dim()} by {b.dim()} dimensions{way}"
    types = {str(each.dtype).removeprefix("torch.") for each in (a, b, out)}
    is_scaled = node.target in (_SCALED, _SECOND)
    if types != ({"float8_e4m3fn", "bfloat16"} if is_scaled else {"bfloat16"}):
        return f"{unserved} of {', '.join(sorted(types))}"
    dtype = "bfloat16"
    if is_scaled:
        if form != "rows" or not _has_served_scales(named):
            return f"{unserved} with other scales than one in fp32 per row of A, and per group and column of B"
        dtype = "e4m3" if named.get("use_fast_accum") else "e4m3_exact"
    if (layout := _layout(a) + _layout(b)) not in LAYOUTS[form]:
        known = f"{form} in {layout}, but in {' or '.join(LAYOUTS[form])}"
        return f"{unserved} of {known if len(layout) > 1 else 'operands that are not dense'}"
    groups = out.shape[0] if form == "inner" else b.shape[0]
    rest, size = a.shape if form == "inner" else reversed(a.shape)
    m, *fixed = convert_shape_to_inductor([size, groups, b.shape[-1], rest])
    if any(getattr(each, "free_symbols", None) for each in fixed):
        return f"{unserved} whose n, k or number of groups is dynamic"
    if 0 in (m, *fixed):
        return "it is empty"
    if fixed[1] % _ALIGNED:
        return f"{unserved} whose n={fixed[1]} is no multiple of {_ALIGNED}"
    kind = "dynamic" if getattr(m, "free_symbols", None) else "static"
    key = f"grouped_{form}:{dtype}:{layout}:{'x'.join(map(str, fixed))}:none:{kind}"
    return GroupedProduct(key, m, _hint(size))


def operands_of(operator: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 (torch's)
    """Return the operands of a call by their names in the operator's schema: self, mat2, offs and others.

    A product with scales per row has those of the first operator, whichever of the two it calls.
    """
    found = _by_name(operator, arguments, named)
    per_row = all([*found.get(name, [])] in values for name, values in _PER_ROW.items())
    if operator is not _SECOND or not per_row or any(len(found[name]) != 1 for name in SCALES):
        return found
    return _of_first(found)


def call_first(graph: torch.fx.Graph) -> None:
    """Let the products of a graph that mean the same call the first operator, which Inductor lowers."""
    for node in graph.nodes:
        is_second = node.target is _SECOND and node.meta["val"].device.type == "cuda"
        if not is_second or "recipe_a" in (named := operands_of(_SECOND, node.args, node.kwargs)):
            continue
        if "eager_input_vals" in node.meta:  # Inductor keeps their strides, and reads them by the operator's schema
            node.meta["eager_input_vals"] = _arguments(_of_first(_by_name(_SECOND, *node.meta["eager_input_vals"]))), {}
        node.target, node.args, node.kwargs = _SCALED, _arguments(named), {}


def _by_name(operator: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 (torch's)
    return {**dict(zip((each.name for each in operator._schema.arguments), arguments, strict=False)), **named}


def _of_first(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operands of the second operator, whose scales are per row, as the first one takes them."""
    alike = {name: its for name, its in named.items() if name not in _PER_ROW}
    return alike | {name: named[name][0] for name in SCALES}


def _arguments(named: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(named.get(each.name, each.default_value) for each in _SCALED._schema.arguments)


def _has_served_scales(named: Mapping[str, Any]) -> bool:
    """Return whether a product of rows has dense scales in fp32, and none of its result."""
    if "recipe_a" in named:  # of the second operator
        return False
    of_a, of_b = (named[name].meta["val"] for name in SCALES)
    dense = (of_a.stride(), of_b.stride()) == ((1,), (named["mat2"].meta["val"].shape[-1], 1))
    return dense and of_a.dtype is of_b.dtype is torch.float32 and named.get("scale_result") is None


def _layout(operand: torch.Tensor) -> str:
    """Return `n` for a dense operand of rows, `t` for one of columns, else an empty text."""
    size, stride = [*map(_hint, operand.shape)], [*map(_hint, operand.stride())]
    layout, lead = layout_of(size, stride)
    batch, step = (size[0], stride[0]) if len(size) > 2 else (1, None)
    is_dense = layout and unusual_strides(layout, size[-2], size[-1], lead, batch, step) == (None, None)
    return layout if is_dense else ""


def _hint(size: Any) -> int:  # noqa: ANN401 (a number, or torch's symbol)
    """Return a size, of an open one the value that torch saw first, or one within its bounds."""
    hint = size if isinstance(size, int) else size.node.hint
    if hint is None:
        bounds = size.node.shape_env.bound_sympy(size.node.expr)
        hint = max(bounds.lower, min(bounds.upper, _UNKNOWN))
    return int(hint)
