"""Facts of a graph's nodes, as Inductor lowers them: what is inlined, what becomes a tensor. Needs torch alone."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch._inductor import config
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "_scaled_mm_v2", "_int_mm")
"""Operators whose kernels may compute an epilogue."""
RESHAPES = frozenset(("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "alias", "detach", "lift_fresh_copy"))
"""Operators that keep the order of the elements."""
_VIEWS = RESHAPES.union(
    ("permute", "transpose", "t", "slice", "select", "expand", "as_strided", "split", "split_with_sizes"),
    ("unbind", "getitem", "diagonal", "view_as_real", "flip"),
)
_INLINED = frozenset(("cat", "index", "gather", "embedding", "iota", "arange", "repeat", "index_select")).union(
    ("inductor_random", "inductor_seeds", "inductor_lookup_seed", "constant_pad_nd", "full", "scalar_tensor")
)
"""Operators that Inductor inlines where they are used, although they are neither views nor pointwise."""
CONSTANTS = ("full", "scalar_tensor")
"""Operators whose elements are one number."""
REDUCTIONS = frozenset(("sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "any", "all")).union(
    ("var_mean", "var", "std", "norm", "linalg_vector_norm", "native_layer_norm", "logsumexp", "xor_sum"),
    ("softmax", "_softmax", "_log_softmax", "prepare_softmax_online"),
)
"""Operators with a kernel that takes the pointwise operations around it."""
_stored: WeakKeyDictionary[Graph, frozenset[str]] = WeakKeyDictionary()
"""Names by `_stored_for_reads` of the graphs that were asked for."""


def reached(starts: Iterable[Node], further: Callable[[Node], Iterable[Node]]) -> Iterator[Node]:
    """Yield some nodes and all others that `further` leads to, each once."""
    waiting = [*starts]
    seen = {*waiting}
    while waiting:
        yield (node := waiting.pop())
        found = [each for each in further(node) if each not in seen]
        seen.update(found)
        waiting += dict.fromkeys(found)


def inlined_into(output: Node, elementwise: Container[Node]) -> Iterator[Node]:
    """Yield an output and the nodes that are inlined into it."""

    def inlined(node: Node) -> list[Node]:
        reads = [read for read in node.all_input_nodes if name_of(read) not in PRODUCTS]
        return [read for read in reads if read in elementwise or not is_tensor(base_of(read))]

    return reached([output], inlined)


def keeps_order(node: Node) -> bool:
    """Return whether a node is a view whose elements lie in the order of what it views."""
    if name_of(node) != "permute":
        return name_of(node) in RESHAPES
    arguments: Any = node.args
    sizes = shape_of(arguments[0])
    moved = [place % len(sizes) for place in arguments[1] if not are_equal(sizes[place], 1)]
    return moved == sorted(moved)


def is_tensor(node: Node) -> bool:
    """Return whether a node's value is a tensor in memory when what uses it runs."""
    if node.op != "call_function":
        return True
    name = name_of(node)
    if name in _INLINED or name in _VIEWS:
        return False
    return is_forced(node) if is_pointwise(node) else True


def is_forced(node: Node) -> bool:
    """Return whether Inductor stores a pointwise node: what reads it inlines nothing, or it reads many tensors."""
    return _is_read_whole(node) or node.name in _stored_for_reads(node.graph)


def _is_read_whole(node: Node) -> bool:
    """Return whether the graph returns a node, or a kernel reads it that inlines nothing, maybe through views."""
    for user in node.users:
        name = name_of(user)
        if name in _VIEWS:
            if _is_read_whole(user):
                return True
        elif not is_pointwise(user) and name not in _INLINED and name not in REDUCTIONS:
            return True
    return False


def _stored_for_reads(graph: Graph) -> frozenset[str]:
    """Return the names of the pointwise nodes that the graph's lowering stores for the number of tensors they read.

    Inductor asks after each node, also after a view of one: with several users it allows fewer reads. Its limit on the
    number of operations is left out.
    """
    if graph not in _stored:
        _stored[graph] = _read_too_much(graph)
    return _stored[graph]


def _read_too_much(graph: Graph) -> frozenset[str]:
    of_several_users = config.realize_reads_threshold
    default = getattr(config, "_realize_acc_reads_threshold_default", 8)
    of_one: int = config.realize_acc_reads_threshold or default
    reads: dict[str, frozenset[str]] = {}  # of the nodes that are inlined where they are used
    found = set()

    def read(node: Node) -> frozenset[str]:
        base = base_of(node)
        if base.name in reads:
            return reads[base.name]
        views = [view.name for view in views_of(node) if name_of(view) not in RESHAPES]
        return frozenset([":".join((base.name, *views[:1]))]) if shape_of(base) else frozenset()

    for node in graph.nodes:
        if is_pointwise(node) or name_of(node) in _INLINED:
            reads[node.name] = frozenset[str]().union(*map(read, node.all_input_nodes))
        base = base_of(node).name
        if base not in reads:
            continue
        too_much = len(reads[base]) > (of_several_users if len(node.users) > 1 else of_one)
        if too_much or (is_pointwise(node) and _is_read_whole(node)):
            del reads[base]
            found.update([base] if too_much else [])
    return frozenset(found)


def views_of(node: Node) -> Iterator[Node]:
    """Yield a node and what it is a view of, as far as these are views."""
    while node.op == "call_function" and name_of(node) in _VIEWS and node.all_input_nodes:
        yield node
        node = node.all_input_nodes[0]


def base_of(node: Node) -> Node:
    """Return the node that a view is of, or the node itself."""
    *_, view = (None, *views_of(node))
    return node if view is None else view.all_input_nodes[0]


def name_of(node: Node) -> str:
    """Return the name of torch's operator without its overload; empty for what is no call of one."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet is not None:
        return str(packet.__name__)
    return "getitem" if getattr(node.target, "__name__", "") == "getitem" else ""


def is_pointwise(node: Node) -> bool:
    """Return whether a node computes each element of one tensor of elements at the same place."""
    if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    name = name_of(node)
    return name in ("convert_element_type", "clone") or (
        name not in _INLINED and torch.Tag.pointwise in getattr(node.target, "tags", ())
    )


def reduces_last(user: Node, node: Node) -> bool:
    """Return whether a reduction is over a node's last dimension, or over all."""
    given = user.args[1] if len(user.args) > 1 else user.kwargs.get("dim")
    rank = len(shape_of(node))
    dims = [dim for dim in (given if isinstance(given, list | tuple) else [given]) if isinstance(dim, int)]
    return not dims or any(dim % max(rank, 1) == rank - 1 for dim in dims)


def shape_of(node: Node) -> Sequence[Any]:
    """Return the sizes of a node's tensor, empty for what is no tensor."""
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def are_equal(one: Any, other: Any) -> bool:  # noqa: ANN401 (numbers, or sizes that torch computes with)
    """Return whether two sizes are known to be equal, without a guard."""
    return bool(statically_known_true(one == other))
