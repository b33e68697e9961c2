"""Scales and bias of torch's scaled product, which lead its epilogue. Needs torch alone.

aten._scaled_mm(a, b, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum)
aten._scaled_mm_v2(a, b, [scale_a], [recipe], [swizzle], [scale_b], [recipe], [swizzle], bias, out_dtype, [], fast)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Node

from gemmtune.engine.consumers.inductor.epilogues.graph_nodes import are_equal, name_of, shape_of
from gemmtune.engine.records.epilogue.terms import Call, Operand, OperandShape, Product, Term

SCALED = ("_scaled_mm", "_scaled_mm_v2")
"""Names of torch's operators that multiply with scales."""
_PER_TENSOR_OR_ROW = (0, 1)  # of torch.nn.functional.ScalingType
_BLOCKS = {2: "1x16", 3: "1x32", 4: "1x128", 5: "128x128"}  # as above


class LeadingScales(NamedTuple):
    """Part of an epilogue that a scaled product's kernel always computes."""

    term: Term
    """Scaled product, with its bias."""
    tensors: Mapping[Operand, Node]
    """Node of each scale and of the bias."""
    is_fast: bool
    """Whether sums may be accumulated in the fastest way."""


def leading_scales(node: Node) -> LeadingScales | str:
    """Return the scales of a scaled product of the graph, or why no text describes them."""
    schema: Any = getattr(node.target, "_schema", None)
    given: dict[str, Any] = dict(zip([each.name for each in schema.arguments], node.args, strict=False)) | node.kwargs
    levels = [given["scale_a"], given["scale_b"]]
    if name_of(node) == "_scaled_mm_v2":
        if any(len(level) != 1 for level in levels):
            return f"{max(map(len, levels))} levels of scales"
        if any(int(each) for name in ("swizzle_a", "swizzle_b") for each in given[name]):
            return "swizzled scales"
        recipes = [int(each) for name in ("recipe_a", "recipe_b") for each in given[name]]
        if set(recipes) - {*_PER_TENSOR_OR_ROW}:
            blocks = " and ".join(_BLOCKS.get(each, "one each") for each in recipes)
            return f"block-wise {_shown(levels)}, for blocks of {blocks}"
        levels = [level[0] for level in levels]
    if given.get("scale_result") is not None:
        return "a scale of its result"
    found = _operands(node, levels, given["self"])
    if isinstance(found, str):
        return found
    term: Term = Product()
    for operand in found:
        term = Call("mul", (term, operand))
    tensors = dict(zip(found, levels, strict=True))
    if (bias := given.get("bias")) is not None:
        value = bias.meta["val"]
        if value.dtype != node.meta["val"].dtype or value.dim() != 1 or not are_equal(value.stride(0), 1):
            strides = f" and stride {value.stride(0)}" if value.dim() == 1 else ""
            return f"a bias of {str(value.dtype).removeprefix('torch.')} with sizes {_sizes(bias)}{strides}"
        row = Operand(OperandShape.ROW, 3)
        tensors[row] = bias
        term = Call("add", (term, row))
    return LeadingScales(term, tensors, bool(given.get("use_fast_accum", False)))


def _operands(node: Node, scales: Sequence[Node], a: Node) -> tuple[Operand, Operand] | str:
    """Return what the scales of A and B are to the output, or why no text describes them."""
    m, n = shape_of(node)
    values = [scale.meta["val"] for scale in scales]
    if any(value.dtype is not torch.float32 for value in values):
        return f"scales of {' and '.join(str(value.dtype).removeprefix('torch.') for value in values)}"
    (of_a, of_b), shapes = values, [shape_of(scale) for scale in scales]
    dtype = "" if node.meta["val"].dtype is torch.float32 else "fp32"  # a text leaves the output's type out
    if all(are_equal(size, 1) for shape in shapes for size in shape) and len(shapes[0]) == len(shapes[1]):
        return Operand(OperandShape.SCALAR, 1, dtype), Operand(OperandShape.SCALAR, 2, dtype)
    is_row_wise = [len(shape) for shape in shapes] == [2, 2] and all(
        are_equal(*pair) for pair in zip([*shapes[0], *shapes[1]], [m, 1, 1, n], strict=True)
    )
    if not is_row_wise and [len(shape) for shape in shapes] == [2, 2]:
        (rows, parts), (parts_of_b, columns) = shapes
        k = shape_of(a)[1]
        if not (are_equal(parts, 1) and are_equal(parts_of_b, 1)):
            blocks = f"{_part(m, rows)}x{_part(k, parts)} and {_part(n, columns)}x{_part(k, parts_of_b)}"
            return f"block-wise {_shown(scales)}, for blocks of {blocks}"
    if not is_row_wise:
        return f"{_shown(scales)}, which are neither one per operand nor one per row and column"
    if not (are_equal(m, 1) or are_equal(of_a.stride(0), 1)) or not are_equal(of_b.stride(1), 1):
        return "scales that do not lie one after another"
    return Operand(OperandShape.COLUMN, 1, dtype), Operand(OperandShape.ROW, 2, dtype)


def _part(size: Any, parts: Any) -> Any:  # noqa: ANN401 (numbers, or sizes that torch computes with)
    return -(-size // parts)


def _shown(scales: Sequence[Any]) -> str:
    return f"scales of {' and '.join(_sizes(each[0] if isinstance(each, list | tuple) else each) for each in scales)}"


def _sizes(node: Node) -> str:
    return "x".join(map(str, shape_of(node))) or "one number"
