"""Costs of a graph that Inductor lowers: of its calls, and of everything between them. Imports torch."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

import torch
from torch.fx.node import map_arg

from gemmtune.engine.consumers.inductor.floor.call_costs import cost_of_call, elements
from gemmtune.engine.consumers.inductor.floor.shares import Cost

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot")
_GATHERS = ("embedding", "index", "gather", "index_select", "_unsafe_index", "take")
"""Operations that read as many elements of their first operand as they return."""
_SCATTERS = (
    "copy_",
    "index_put",
    "index_copy",
    "scatter",
    "index_add",
    "slice_scatter",
    "select_scatter",
    "_unsafe_index_put",
)
"""Beginnings of operations that leave their first operand in place and write as many elements as their last has."""
_VIEWS = ("view", "_unsafe_view", "reshape", "expand", "permute", "transpose", "t", "slice", "select", "unsqueeze")
_MORE_VIEWS = ("squeeze", "as_strided", "split", "split_with_sizes", "alias", "unbind", "diagonal", "unfold", "detach")


def cost_of_node(node: torch.fx.Node) -> Cost:
    """Return the cost of a call in a graph, from the sizes that torch keeps with each node."""
    args, kwargs = map_arg((node.args, node.kwargs), lambda each: each.meta.get("val"))
    return cost_of_call(node.target, args, kwargs, node.meta.get("val"))


def rest_bytes(runs: Mapping[torch.fx.GraphModule, int], heavy: Collection[torch.fx.Node]) -> float:
    """Return the least bytes that everything but products and library kernels moves.

    Inductor fuses what lies between products. At best all of it that is connected is one kernel, which reads and writes
    a tensor once. It ends where a product must have run before.

    Args:
        runs: runs of a graph, and of those of its branches, loops and regions.
        heavy: calls of kernels that are neither Inductor's nor products.
    """
    return sum(_Rest(part.graph, {*heavy}).bytes * count for part, count in runs.items())


class _Rest:
    """Kernels between the heavy calls of one graph.

    Attributes:
        bytes: bytes that they move.
    """

    def __init__(self, graph: torch.fx.Graph, heavy: set[torch.fx.Node]) -> None:
        self._heavy = {node for node in graph.nodes if node in heavy or _name(node) in _PRODUCTS}
        self._levels: dict[torch.fx.Node, int] = {}
        self._kernels: dict[torch.fx.Node, torch.fx.Node] = {}
        for node in graph.nodes:
            self._place(node)
        reads: dict[tuple[torch.fx.Node, torch.fx.Node], dict[torch.fx.Node, float]] = defaultdict(dict)
        written: dict[torch.fx.Node, float] = {}
        for node in graph.nodes:
            kernel = self._kernel(node)
            for given in node.all_input_nodes:
                base, through = _base(given), given
                other = self._kernel(base)
                if kernel is not None and other != kernel and not _is_free(base):
                    read = reads[kernel, base]
                    read[through] = max(read.get(through, 0), _read_bytes(node, through))
                if other is not None and other != kernel and not _is_view(node):
                    written[base] = _written_bytes(base)
            if kernel is not None and getattr(getattr(node.target, "_schema", None), "is_mutable", False):
                written[node] = _written_bytes(node)
        whole = sum(min(sum(parts.values()), _bytes(base)) for (_, base), parts in reads.items())
        self.bytes = whole + sum(written.values())

    def _place(self, node: torch.fx.Node) -> None:
        """Give a node its level, the products that must have run before it, and the kernel that it is part of."""
        if node.target is operator.getitem and node.args[0] in self._heavy:
            self._heavy.add(node)
        inputs = [_base(each) for each in node.all_input_nodes]
        level = max((self._levels.get(each, 0) + (each in self._heavy) for each in inputs), default=0)
        self._levels[node] = level
        if node.op != "call_function" or node in self._heavy or _is_view(node) or _is_free(node):
            return
        self._kernels[node] = node
        for each in inputs:
            if each in self._kernels and self._levels[each] == level and not _is_scatter(each):
                self._kernels[self._root(each)] = self._root(node)

    def _root(self, node: torch.fx.Node) -> torch.fx.Node:
        while self._kernels[node] is not node:
            node = self._kernels[node]
        return node

    def _kernel(self, node: torch.fx.Node) -> torch.fx.Node | None:
        return self._root(node) if node in self._kernels else None


def _name(node: torch.fx.Node) -> str:
    return str(getattr(node.target, "_opname", ""))


def _is_view(node: torch.fx.Node) -> bool:
    return _name(node) in _VIEWS or _name(node) in _MORE_VIEWS


def _base(node: torch.fx.Node) -> torch.fx.Node:
    """Return the node whose memory a view shows."""
    while _is_view(node) or (node.target is operator.getitem and _is_view(node.all_input_nodes[0])):
        node = node.all_input_nodes[0]
    return node


def _is_scatter(node: torch.fx.Node) -> bool:
    """Return whether a call writes into a tensor that is there, which a later kernel reads whole."""
    return _name(node).startswith(_SCATTERS)


def _is_free(node: torch.fx.Node) -> bool:
    """Return whether a node computes its value from none, such as zeros, which each kernel makes for itself."""
    return node.op == "call_function" and not node.all_input_nodes


def _tensors(node: torch.fx.Node) -> Iterator[torch.Tensor]:
    value = node.meta.get("val")
    values = value if isinstance(value, tuple | list) else [value]
    yield from (each for each in values if isinstance(each, torch.Tensor))


def _bytes(node: torch.fx.Node) -> float:
    return float(sum(elements(each) * each.dtype.itemsize for each in _tensors(node)))


def _read_bytes(node: torch.fx.Node, given: torch.fx.Node) -> float:
    """Return the bytes that a call reads of an input."""
    is_first = bool(node.all_input_nodes) and node.all_input_nodes[0] is given
    name = _name(node)
    if is_first and name in _GATHERS:
        return min(_bytes(node), _bytes(given))
    if is_first and _is_scatter(node):
        return 0.0
    return 0.0 if _is_view(node) else _bytes(given)


def _written_bytes(node: torch.fx.Node) -> float:
    """Return the bytes that a call writes."""
    if _is_scatter(node) and len(node.all_input_nodes) > 1:
        return _bytes(node.all_input_nodes[-1])
    return _bytes(node)
