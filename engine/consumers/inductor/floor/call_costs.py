"""Flops and bytes of a call of an operation, from the sizes of its tensors. Imports torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from gemmtune.engine.consumers.inductor.floor.shares import Cost

_TYPES = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
    torch.int8: "int8",
}
_LIKE_MM = (
    *("_int_mm", "woq_int8", "_weight_int8pack_mm", "_weight_int4pack_mm", "mv", "_scaled_mm_v2"),
    *("_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2"),
)
"""Products that torch has no formula for: columns of the first operand are summed."""
_BACKWARD = "backward"


def cost_of_call(
    operation: Any,  # noqa: ANN401 (torch's)
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    out: object,
) -> Cost:
    """Return the cost of one call, whose operands are read once and whose outputs are written once.

    An open size has the value that torch saw first. Of a grouped product's weights, no more groups than rows are read.

    Args:
        operation: overload of an operation, or an operator of higher order.
        args: arguments; tensors may have no data.
        kwargs: arguments by name.
        out: result, a tensor or several.
    """
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)]
    made = [each for each in tree_leaves(out) if isinstance(each, torch.Tensor)]
    read: dict[int, float] = {id(each): elements(each) * each.dtype.itemsize for each in tensors}
    name = str(getattr(operation, "_opname", getattr(operation, "__name__", operation)))
    if "_grouped_mm" in name and len(tensors) > 1 and tensors[1].dim() == 3:
        groups = number(tensors[1].shape[0])
        read[id(tensors[1])] *= min(1.0, number(tensors[0].shape[0]) / groups)
    moved = sum(read.values()) + sum(elements(each) * each.dtype.itemsize for each in made)
    kind = _TYPES.get(tensors[0].dtype, "") if tensors else ""
    if kind == "fp32" and torch.get_float32_matmul_precision() != "highest":
        kind = "tf32"
    return Cost(_flops(operation, name, args, kwargs, tensors, made), moved, kind)


def elements(tensor: torch.Tensor) -> int:
    """Return the number of a tensor's elements in memory: a size that is broadcast counts once."""
    return math.prod(
        number(size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if number(stride) != 0
    )


def number(size: Any) -> int:  # noqa: ANN401 (an integer, or torch's symbol)
    """Return a size, of an open one the value that torch saw first; 1 for one that depends on values."""
    if isinstance(size, int):
        return size
    hint = size.node.hint
    return 1 if hint is None else int(hint)


def _flops(
    operation: Any,  # noqa: ANN401 (torch's)
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    tensors: Sequence[torch.Tensor],
    made: Sequence[torch.Tensor],
) -> float | None:
    """Return the operations of a call; None for one without a formula."""
    schema = getattr(operation, "_schema", None)
    named = {**dict(zip((each.name for each in schema.arguments), args, strict=False)), **kwargs} if schema else {}
    if {"query", "key", "value"} <= named.keys():
        return _of_attention(named, is_backward=_BACKWARD in name)
    if name in _LIKE_MM:
        of_matrices = tensors[0].dim() == tensors[1].dim() == 2
        split = number(made[0].shape[0]) if of_matrices and made[0].dim() == 3 else 1  # of the sum
        return 2 * math.prod(map(number, made[0].shape)) * number(tensors[0].shape[-1]) / split
    formula: Callable[..., Any] | None = flop_registry.get(getattr(operation, "overloadpacket", None))
    if formula is None:
        return None
    try:
        return float(number(formula(*args, **kwargs, out_val=made[0] if len(made) == 1 else tuple(made))))
    except (AssertionError, TypeError, ValueError):  # sizes that torch's formula does not know
        return None


def _of_attention(named: Mapping[str, Any], *, is_backward: bool) -> float:
    """Return the operations of attention: two products of a pair of positions, five of the gradients."""
    query, key, value = (named[name] for name in ("query", "key", "value"))
    *batch, rows, head = map(number, query.shape)
    columns, value_head = number(key.shape[-2]), number(value.shape[-1])
    pairs = rows * columns
    if named.get("is_causal") or named.get("causal"):
        square = min(rows, columns)
        pairs = square * (square + 1) // 2 + max(0, rows - columns) * columns
    per_pair = 3 * head + 2 * value_head if is_backward else head + value_head
    return 2.0 * math.prod(batch) * pairs * per_pair
