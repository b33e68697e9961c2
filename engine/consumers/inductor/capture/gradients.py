"""Gradients by torch's own backward functions, called from Python. Imports torch.

torch's engine asks the device of every tensor for its streams, so it cannot run without the device. These functions
walk the same graph and need none. They serve tensors without data, whose gradients have sizes and no values.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeAlias
from unittest.mock import patch

import torch
from torch.autograd.graph import get_gradient_edge

_LEAF = "torch::autograd::AccumulateGrad"
_TASKS = count()
"""Numbers of backward passes: a checkpointed block runs once more in each, and not per tensor that it saved."""
_Node: TypeAlias = Any  # torch's Node, whose call and metadata have no types
_Tensors: TypeAlias = torch.Tensor | Sequence[torch.Tensor]
_Seeds: TypeAlias = torch.Tensor | Sequence[torch.Tensor | None] | None


def grad(
    outputs: _Tensors,
    inputs: _Tensors,
    grad_outputs: _Seeds = None,
    _retain_graph: bool | None = None,
    create_graph: bool = False,
    _only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
    **_: object,
) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients of the inputs, like `torch.autograd.grad`.

    Raises:
        NotImplementedError: they are wanted in batches.
        RuntimeError: no output follows from an input, and `allow_unused` is not set.
    """
    if is_grads_batched:
        raise NotImplementedError("gradients in batches have no rule for tensors without data: capture on the GPU")
    given = _listed(outputs)
    order = _in_order(get_gradient_edge(tensor).node for tensor in given)
    leaves = {id(node.variable): node for node in order if node.name() == _LEAF}
    wanted = [_edge(tensor, leaves) for tensor in _listed(inputs)]
    with torch.set_grad_enabled(create_graph):  # functions choose a formula by it
        found = _gradients(given, _seeds(given, grad_outputs), {node for node, _ in wanted if node is not None})
    if not allow_unused and not materialize_grads and any(edge not in found for edge in wanted):
        raise RuntimeError("no output follows from one of the tensors to differentiate by: set allow_unused=True")
    known = zip(wanted, _listed(inputs), strict=True)
    return tuple(found.get(edge, torch.zeros_like(its) if materialize_grads else None) for edge, its in known)


def backward(tensors: _Tensors, grad_tensors: _Seeds = None, *_: object, **__: object) -> None:
    """Add the gradients of all leaves to their `grad`, like `torch.autograd.backward`."""
    given = _listed(tensors)
    with torch.no_grad():
        for (node, _output), gradient in _gradients(given, _seeds(given, grad_tensors), None).items():
            leaf = node.variable
            leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient


def _edge(tensor: torch.Tensor, leaves: Mapping[int, _Node]) -> tuple[_Node, int]:
    """Return the node of an input, and the place of its gradient; without a node where no output follows from it.

    A leaf is found by its object: a view, as torch finds it, leads elsewhere for tensors of `torch.func.vjp`.
    """
    if tensor.requires_grad and tensor.grad_fn is None:
        return leaves.get(id(tensor)), 0
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def _listed(tensors: _Tensors) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _seeds(outputs: Sequence[torch.Tensor], given: _Seeds) -> list[torch.Tensor]:
    """Return the gradient that each output starts with: the given one, or ones."""
    known = [given] if isinstance(given, torch.Tensor) else list(given or [None] * len(outputs))
    return [torch.ones_like(out) if seed is None else seed for out, seed in zip(outputs, known, strict=True)]


def _gradients(
    outputs: Iterable[torch.Tensor], seeds: Iterable[torch.Tensor], targets: set[_Node] | None
) -> dict[tuple[_Node, int], torch.Tensor]:
    """Return the gradients that arrive at the target nodes, by node and position; at the leaves without targets."""
    roots = [get_gradient_edge(tensor) for tensor in outputs]
    order = _in_order(edge.node for edge in roots)
    ends = {node for node in order if node.name() == _LEAF} if targets is None else targets
    inner: set[_Node] = set()
    for node in reversed(order):
        if any(after in ends or after in inner for after, _ in node.next_functions):
            inner.add(node)
    arrived: defaultdict[_Node, dict[int, torch.Tensor]] = defaultdict(dict)

    def add(node: _Node, position: int, gradient: torch.Tensor) -> None:
        fitted = _fitted(gradient, node._input_metadata[position])
        before = arrived[node].get(position)
        arrived[node][position] = fitted if before is None else before + fitted

    for edge, seed in zip(roots, seeds, strict=True):
        add(edge.node, edge.output_nr, seed)
    found: dict[tuple[_Node, int], torch.Tensor] = {}
    with patch("torch._C._current_graph_task_id", partial(int, next(_TASKS))):
        for node in order:
            its = arrived.pop(node, {})
            if node in ends:
                found.update({(node, position): gradient for position, gradient in its.items()})
            if node not in inner or not its:
                continue
            arguments = [its.get(position) for position in range(len(node._input_metadata))]
            for (after, position), gradient in _passed_on(node, arguments):
                if gradient is not None and (after in ends or after in inner):
                    add(after, position, gradient)
    return found


def _passed_on(
    node: _Node, arguments: Sequence[torch.Tensor | None]
) -> Iterator[tuple[tuple[_Node, int], torch.Tensor | None]]:
    """Yield the gradient that a node computes for each tensor that it leads to."""
    written_in_python = hasattr(node, "apply")
    if written_in_python:  # such a function gets zeros for outputs without a gradient
        metadata = node._input_metadata
        arguments = [
            torch.zeros(tuple(its.shape), dtype=its.dtype, device=its.device) if each is None else each
            for each, its in zip(arguments, metadata, strict=True)
        ]
    result = node.apply(*arguments) if written_in_python else node(*arguments)
    gradients = result if isinstance(result, tuple) else (result,)
    if not written_in_python:
        yield from zip(node.next_functions, gradients, strict=True)
        return
    # A function in Python has a gradient per input, and a node only per input that is a tensor.
    wanted = (each for each, is_needed in zip(gradients, node.needs_input_grad, strict=True) if is_needed)
    yield from zip((edge for edge in node.next_functions if edge[0] is not None), wanted, strict=True)


def _in_order(roots: Iterable[_Node]) -> list[_Node]:
    """Return the nodes that the roots lead to in the order of torch's engine: the last one made of those that may run.

    A node may run when all that lead to it have run.
    """
    found, waiting, number = list(dict.fromkeys(roots)), Counter[_Node](), count()
    seen = set(found)
    for node in found:  # which grows meanwhile
        for after in _after(node):
            waiting[after] += 1
            if after not in seen:
                seen.add(after)
                found.append(after)
    ready: list[tuple[int, int, _Node]] = []
    order: list[_Node] = []

    def add(node: _Node) -> None:
        if not waiting[node]:
            heapq.heappush(ready, (-node._sequence_nr(), next(number), node))

    for node in found:
        add(node)
    while ready:
        order.append(heapq.heappop(ready)[-1])
        for after in _after(order[-1]):
            waiting[after] -= 1
            add(after)
    return order


def _after(node: _Node) -> list[_Node]:
    return [after for after, _ in node.next_functions if after is not None]


def _fitted(gradient: torch.Tensor, metadata: Any) -> torch.Tensor:  # noqa: ANN401 (torch's, untyped)
    """Return a gradient with the sizes and type of its tensor: summed over broadcast sizes, as the engine does."""
    summed = gradient if tuple(gradient.shape) == tuple(metadata.shape) else gradient.sum_to_size(metadata.shape)
    return summed if summed.dtype == metadata.dtype else summed.to(metadata.dtype)
