"""Calls of flex_attention in a graph, as rows describe them. Needs torch alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from gemmtune.engine.consumers.inductor.loader.loader_rows import DTYPE_NAMES
from gemmtune.engine.records.flex.attention_text import DTYPES, SIZES, attention_text, decodes
from gemmtune.engine.records.flex.functions import KNOWN, NAMES, TENSORS, Function, reads, renamed, text_of, truth
from gemmtune.engine.records.flex.masks import NONE, short
from gemmtune.engine.records.flex.tensors import tensors_of

FORWARD, BACKWARD = "flex_attention", "flex_attention_backward"
"""Names of the operators."""
GRAPH_AND_MASK = {FORWARD: (3, 4), BACKWARD: (7, 9)}
"""Places of the score's graph and of the mask among the arguments; two behind the mask are the options."""
_KERNEL_OPTIONS = {
    **{"BACKEND": "AUTO", "WRITE_DQ": True},
    **dict.fromkeys(("PRESCALE_QK", "ROWS_GUARANTEED_SAFE", "BLOCKS_ARE_CONTIGUOUS", "OUTPUT_MAX"), False),
}
"""Options that torch adds to a call that states none; a row is for these."""
_MOST_OPERATIONS = 256  # of a text, where a result has its operations at each place that reads it
_OPEN = "?"  # name of a number that torch left open
_FREE = ("OUTPUT_LOGSUMEXP",)
_WITHOUT_MASK = (1 << 30, 1 << 30)
"""Blocks of the mask that torch makes for a call without one."""
_SHIFTS = ("__rshift__", "bitwise_right_shift")
_ALIKE = {
    **{"bitwise_and": "and", "logical_and": "and", "bitwise_or": "or", "logical_or": "or"},
    **{"bitwise_not": "not", "logical_not": "not", "remainder": "mod", "floor_divide": "floordiv"},
    **{"clamp_min": "maximum", "clamp_max": "minimum", **dict.fromkeys(_SHIFTS, "floordiv")},
}
_OF_BOOLS = {"mul": "and", "add": "or", "minimum": "and", "maximum": "or", "bitwise_xor": "ne"}
_PASSED = ("convert_element_type", "_to_copy", "clone", "alias")


class FlexCall(NamedTuple):
    """Call of flex_attention that a row may describe."""

    key: str
    """Name of the attention, with 1 for lengths that are open."""
    length: Any
    """Open length: an expression; 1 where none is open."""
    hint: int
    """Value of the open length that torch saw first; 1 where none is open."""
    read: tuple[int, ...] = ()
    """Places among the tensors that the mask is given of those that it reads."""


def flex_call(node: Node, phase: str) -> FlexCall:
    """Return a call of flex_attention as the table's rows describe it.

    Raises:
        ValueError: no row describes the call; the message says why.
    """
    at_graph, at_mask = GRAPH_AND_MASK[BACKWARD if phase == "backward" else FORWARD]
    blocks: Any = node.args[at_mask]
    _check_options(node.args[at_mask + 2])
    score_reads, mask_reads = (cast("Sequence[object]", node.args[at_mask + place]) for place in (3, 4))
    if score_reads:
        raise ValueError("its score function reads a tensor")
    q, k, v = (each.meta["val"] for each in node.args[:3])  # type: ignore[union-attr] # nodes
    sizes = (q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3])
    dynamic = _dynamic(sizes)
    if dynamic == "s" and phase == "decode":
        raise ValueError("its few queries are open, and a tile of its kernel holds those of the first call")
    if k.shape[0] != q.shape[0]:
        raise ValueError("its sequences share keys")
    if len({q.dtype, k.dtype, v.dtype}) > 1:
        raise ValueError("queries, keys and values have several dtypes")
    if (dtype := DTYPE_NAMES.get(name := str(q.dtype).removeprefix("torch."), name)) not in DTYPES:
        raise ValueError(f"its operands are {dtype}, and rows of attention {' or '.join(DTYPES)}")
    graph: Any = node.args[at_graph]
    score_graph, mask_graph = (getattr(node.graph.owning_module, each.target) for each in (graph, blocks[-1]))
    score = short(text_of(read_function(score_graph, NAMES[:5])), "s")
    function = renamed(truth(read_function(mask_graph, (*NAMES[1:5], *_names(mask_reads)))), {})
    read = [place for place, name in enumerate(TENSORS) if reads(function, name)]
    mask = short(text_of(renamed(function, {TENSORS[place]: name for place, name in zip(read, TENSORS, strict=False)})))
    block = tuple(blocks[-3:-1])
    if not all(isinstance(size, int) for size in block):
        raise ValueError("the blocks of its mask are dynamic")
    if any(size & (size - 1) for size in block):
        raise ValueError(f"the blocks of its mask are {block[0]}x{block[1]}, and those of rows powers of two")
    tensors_of(mask)  # which refuses indices that no values are known for
    is_few = dynamic != "s" and decodes(q.shape[2], q.shape[1], k.shape[1], of_heads=reads(function, "h"))
    if phase == ("forward" if is_few else "decode"):
        way_out = "reads a head: give create_block_mask" if phase == "decode" else "reads no head: leave out"
        raise ValueError(f"its mask {way_out} H, as the kernel of few queries goes by the heads of its blocks")
    if mask == NONE and block != _WITHOUT_MASK:
        raise ValueError(f"its mask is blocks of {block[0]}x{block[1]} alone")
    named = {name: size if isinstance(size, int) else 1 for name, size in zip(SIZES.values(), sizes, strict=True)}
    key = attention_text(phase, named, dtype, mask, score, {}, (block[0], block[1]), dynamic)
    length, hint = (k.shape[2].node.expr, int(k.shape[2].node.hint)) if dynamic else (1, 1)
    return FlexCall(key, length, hint, tuple(read))


def _dynamic(sizes: Sequence[Any]) -> str:
    """Return which lengths are open, as an attention's `dynamic` has them."""
    queries, keys = (None if isinstance(sizes[place], int) else sizes[place].node.expr for place in (3, 4))
    if any(not isinstance(size, int) for place, size in enumerate(sizes) if place not in (3, 4)):
        raise ValueError("one of its sizes beside the lengths is dynamic")
    if queries is not None and queries != keys:
        raise ValueError("its queries have an open length, and its keys another one")
    if keys is not None and sizes[4].node.hint is None:
        raise ValueError("its length depends on values")
    return "" if keys is None else "kv" if queries is None else "s"


def _check_options(options: Any) -> None:  # noqa: ANN401 (a mapping)
    """Refuse a call whose options are the user's: these win, and with them the row would be another kernel's."""
    others = {name: its for name, its in options.items() if name not in _FREE and _KERNEL_OPTIONS.get(name) != its}
    if "OUTPUT_MAX" in others:
        raise ValueError("its AuxRequest asks for max_scores, which no row's kernel stores")
    if others:
        raise ValueError(f"its kernel_options set {', '.join(sorted(others))}")


def _names(tensors: Sequence[object]) -> tuple[str, ...]:
    """Return the names of what a mask is given: tensors, and open numbers, which it may not read."""
    found = [isinstance(getattr(each, "meta", {}).get("val"), torch.Tensor) for each in tensors]
    if sum(found) > len(TENSORS):
        raise ValueError(f"its mask reads {sum(found)} tensors, and a row's at most {len(TENSORS)}")
    names = iter(TENSORS)
    return tuple(next(names) if is_tensor else _OPEN for is_tensor in found)


def read_function(module: GraphModule, names: Sequence[str]) -> Function:
    """Return the function that a graph computes of inputs with these names; raises ValueError if there is none."""
    values: dict[Node, Function] = {}
    sizes, waiting = dict[Node, int](), list(names)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = waiting.pop(0) if waiting else _OPEN
        elif node.op == "call_function":
            sizes[node] = 1 + sum(sizes.get(each, 0) for each in tree_leaves((node.args, node.kwargs)))
            if sizes[node] > _MOST_OPERATIONS:
                raise ValueError(f"its mask or score has more than {_MOST_OPERATIONS} operations, each per use")
            is_open = not isinstance(node.meta["val"], torch.Tensor)  # of numbers alone
            values[node] = _OPEN if is_open else _operation(node, values)
        elif node.op == "output":
            result = node.args[0]
            result = result[0] if isinstance(result, tuple | list) else result
            function: Function = values[result] if isinstance(result, Node) else result
            if reads(function, _OPEN):
                raise ValueError("its mask or score reads a number that is open")
            return function
        else:
            raise ValueError(f"its mask or score reads {node.target}")
    raise ValueError("its mask or score has no result")


def _operation(node: Node, values: Mapping[Node, Function]) -> Function:
    """Return the function of one call, of the functions that it reads."""

    def value(argument: Any) -> Any:  # noqa: ANN401 (torch's)
        if isinstance(argument, Node):
            return values[argument]
        if isinstance(argument, bool | int | float):
            return argument
        raise ValueError(f"its mask or score has an operand {argument}")

    name = str(node.target).split(".")[1] if "." in str(node.target) else str(node.target)
    dtype: torch.dtype = node.meta["val"].dtype
    if name in ("full", "new_full"):
        return cast("Function", value(node.args[-1]))
    if name in ("ones", "new_ones"):
        return 1
    if name in _PASSED:
        source: torch.dtype = node.args[0].meta["val"].dtype  # type: ignore[union-attr] # a node
        if source.is_floating_point and not (dtype.is_floating_point or dtype == torch.bool):
            raise ValueError(f"its mask or score cuts a number off to {str(dtype).removeprefix('torch.')}")
        found = value(node.args[0])
        if source == torch.bool != dtype:
            return ("where", found, 1, 0)
        return truth(found) if dtype == torch.bool else found
    if name == "index":
        tensor, index = node.args
        return ("at", value(tensor), *map(value, index))  # type: ignore[arg-type] # a list
    operation = _OF_BOOLS.get(name, _ALIKE.get(name, name)) if dtype == torch.bool else _ALIKE.get(name, name)
    operands = [truth(each) if name.startswith("logical") else each for each in map(value, node.args)]
    if operation == "div" and node.kwargs.get("rounding_mode") == "floor":
        operation = "floordiv"
    elif node.kwargs or operation not in KNOWN:
        raise ValueError(f"its mask or score computes {node.target}")
    if name == "bitwise_not" and dtype != torch.bool:
        return ("sub", -1, *operands)
    if name in _SHIFTS:
        operands[1] = ("pow", 2, operands[1])
    if operation in ("and", "or", "not") and dtype != torch.bool and any(reads((name, *operands), t) for t in TENSORS):
        raise ValueError("its mask or score reads bits of a tensor")
    return (operation, *operands)
