"""Reader of the epilogue that Inductor can fuse into a product, from the graph it lowers. Needs torch alone.

    found = read_epilogue(V.graph.current_node)     # of mm, addmm or bmm, where Inductor asks for its choices

The rules are those of torch/_inductor/graph.py, ir.py and scheduler.py, 2.11 to 2.15:

* Pointwise operations are inlined into those that use them. One becomes an output of the epilogue, a tensor of its
  own, if the graph returns it. So it does if a kernel that inlines nothing reads it, such as another product, and if it
  reads more tensors than Inductor's settings allow.
* An output is fused if it reads the product element by element. Every other tensor that it reads must exist without the
  product.
* A reduction over the columns takes the pointwise operations around it into its own kernel, so then nothing is fused.
* The product itself is stored, too, if anything else reads it.
* An output of several products belongs to the last of them, which is the nearest in Inductor's score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Node

from gemmtune.engine.consumers.inductor.epilogues.graph_nodes import (
    CONSTANTS,
    PRODUCTS,
    REDUCTIONS,
    are_equal,
    base_of,
    inlined_into,
    is_forced,
    is_pointwise,
    is_tensor,
    keeps_order,
    name_of,
    reached,
    reduces_last,
    shape_of,
    views_of,
)
from gemmtune.engine.consumers.inductor.epilogues.scales import SCALED, LeadingScales, leading_scales
from gemmtune.engine.records.epilogue.chain import NO_EPILOGUE, Epilogue, Output, ordered_epilogue
from gemmtune.engine.records.epilogue.terms import POINTWISE, Call, Operand, OperandShape, Product, Term

_MOST_TERMS = 300  # of an unfolded formula; the longest activation's has 45
_DTYPES = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32", torch.bool: "bool"}
_FUSES_BLOCKS = not torch.__version__.startswith("2.11.")  # its scheduler knows no shared buffer by its name
_SAME = {**{name: name for name in POINTWISE}, "clamp_min": "maximum", "clamp_max": "minimum"}
"""Operations of an epilogue by the names of torch's operators."""


class ReadEpilogue(NamedTuple):
    """Epilogue that Inductor can fuse into one product."""

    epilogue: Epilogue | None
    """The epilogue, empty for a product alone; None for operations that no text describes."""
    nodes: frozenset[str]
    """Names of the graph's nodes that the epilogue computes, empty without one."""
    reason: str = ""
    """Reason why no text describes the epilogue; empty otherwise."""
    outputs: tuple[tuple[Node, int], ...] = ()
    """Graph's nodes that are outputs, with their numbers among the epilogue's outputs; without the product itself."""
    operands: tuple[Node, ...] = ()
    """Graph's nodes of the epilogue's operands, in the order of its text."""


PLAIN = ReadEpilogue(NO_EPILOGUE, frozenset())
"""Finding for a product alone."""


class _UnreadableError(Exception):
    """Something in an epilogue that its text cannot say."""


def read_epilogue(product: Node) -> ReadEpilogue:
    """Return what Inductor can fuse into the kernel of a product; the graph is only read.

    Args:
        product: node of an mm, addmm or bmm in a graph that Inductor lowers; its `meta` has the fake tensor `val`.
    """
    if name_of(product) == "convolution":  # one of 1x1 is lowered to a product, whose views nothing here follows
        return PLAIN
    if name_of(product) not in PRODUCTS:
        return ReadEpilogue(None, frozenset(), f"{name_of(product) or product.op} is no product")
    if getattr(torch._inductor.config, "emulate_precision_casts", False):
        return ReadEpilogue(None, frozenset(), "emulate_precision_casts rounds between operations")
    scales = leading_scales(product) if name_of(product) in SCALED else None
    if isinstance(scales, str):
        return ReadEpilogue(None, frozenset(), scales)
    alone = PLAIN if scales is None else scales_alone(scales)
    reader = _Reader(product, scales)
    if reader.is_reduced():
        return alone
    computed = reader.computed()
    if not computed:
        return alone
    if name_of(product) == "_int_mm":
        reader.dtype_left_out = computed[0].meta["val"].dtype
    try:
        outputs = [Output(reader.term(node, shape_of(node))[0], reader.dtype(node)) for node in computed]
        if reader.is_read_elsewhere(computed):
            outputs.append(Output(reader.own, reader.dtype(product)))  # no type of an output is a whole number's
        found = ordered_epilogue(tuple(outputs))
        places = tuple(zip(computed, found.output_numbers, strict=False))  # the product itself is the last output
        tensors = tuple(reader.tensors[operand] for operand in found.operands)
        return ReadEpilogue(found.epilogue, frozenset(reader.inlined), "", places, tensors)
    except (_UnreadableError, ValueError) as error:
        return ReadEpilogue(None, frozenset(reader.inlined), str(error))


def scales_alone(scales: LeadingScales) -> ReadEpilogue:
    """Return the epilogue of a scaled product that nothing is fused into."""
    found = ordered_epilogue((Output(scales.term),))
    return ReadEpilogue(found.epilogue, frozenset(), operands=tuple(scales.tensors[each] for each in found.operands))


class _Reader:
    """Reader of one product's uses.

    Attributes:
        inlined: names of the nodes that the epilogue computes.
        tensors: node of each operand.
        own: value of the product itself, with its scales.
        dtype_left_out: type that no text states, the product's; that of an output where it is of whole numbers.
    """

    def __init__(self, product: Node, scales: LeadingScales | None = None) -> None:
        self._product = product
        self._shape, self.dtype_left_out = shape_of(product), product.meta["val"].dtype
        self.own: Term = Product() if scales is None else scales.term
        self.inlined: set[str] = set()
        self.tensors: dict[Operand, Node] = {} if scales is None else {**scales.tensors}
        self._operands: dict[object, Operand] = {}
        self._terms: dict[Node, tuple[Term, int]] = {}
        users = {*reached([product], lambda node: filter(self._is_elementwise, node.users))} - {product}
        self._elementwise = dict.fromkeys((product, *sorted(users)))  # in an order of dependence

    def _is_elementwise(self, node: Node) -> bool:
        if not (is_pointwise(node) or keeps_order(node)):
            return False
        return are_equal(math.prod(shape_of(node)), math.prod(self._shape))

    def is_reduced(self) -> bool:
        """Return whether a reduction over the columns reads the product, or what is computed of its elements."""
        return any(
            name_of(user) in REDUCTIONS and reduces_last(user, node)
            for node in self._elementwise
            for user in node.users
        )

    def computed(self) -> list[Node]:
        """Return the pointwise nodes that become tensors of their own and can be fused."""
        forced = [node for node in self._elementwise if is_pointwise(node) and is_forced(node)]
        if not forced:
            return []
        others = self._dependent_otherwise(max(forced))
        return [node for node in forced if self._is_fused(node, others)]

    def _dependent_otherwise(self, last: Node) -> set[Node]:
        """Return the nodes up to `last` that depend on the product, and not element by element."""

        def others(node: Node) -> list[Node]:
            return [user for user in node.users if user not in self._elementwise and user < last]

        return {*reached(self._elementwise, others)} - {*self._elementwise}

    def _is_fused(self, output: Node, others: set[Node]) -> bool:
        """Return whether all that an output reads exists without the product, and no later product takes the output."""
        for node in inlined_into(output, self._elementwise):
            for read in node.all_input_nodes:
                base = base_of(read)
                is_later = read is not self._product and self._product < base and name_of(base) in PRODUCTS
                if read in others or (is_later and are_equal(math.prod(shape_of(base)), math.prod(shape_of(output)))):
                    return False
        return True

    def is_read_elsewhere(self, computed: Sequence[Node]) -> bool:
        """Return whether anything but the outputs reads the product's elements."""
        own = self._elementwise.keys() - {*computed}
        nodes = reached([self._product], lambda node: own & node.users.keys())
        return any(node.users.keys() - self._elementwise or (is_pointwise(node) and is_forced(node)) for node in nodes)

    def dtype(self, node: Node) -> str:
        """Return the short name of an output's element type; empty for the product's."""
        found = _DTYPES.get(node.meta["val"].dtype)
        if found is None or found == "bool":
            raise _UnreadableError(f"an output of {node.meta['val'].dtype}")
        return "" if node.meta["val"].dtype == self.dtype_left_out else found

    def term(self, node: Node, space: Sequence[Any]) -> tuple[Term, int]:
        """Return the value of a node in an index space of the output's elements, and its number of terms."""
        if node is self._product:
            return self.own, 1
        if node not in self._terms:
            self._terms[node] = self._computed_term(node, space)
        term, count = self._terms[node]
        if count > _MOST_TERMS:
            raise _UnreadableError(f"a formula of more than {_MOST_TERMS} terms")
        return term, count

    def _computed_term(self, node: Node, space: Sequence[Any]) -> tuple[Term, int]:
        mine = node in self._elementwise
        if name_of(node) in CONSTANTS:
            self.inlined.add(node.name)
            return _number(node.args[-1]), 1
        if keeps_order(node) and (mine or not is_tensor(base_of(node))):
            read = node.args[0]  # sizes that are known at run time are inputs of a reshape, too
            assert isinstance(read, Node)
            sizes = shape_of(read)
            if _FUSES_BLOCKS and all(are_equal(math.prod(each[-1:]), 1) for each in (sizes, shape_of(node))):
                sizes = (*sizes[:-1], space[-1])  # a value per row
            if not are_equal(math.prod(sizes), math.prod(space)):
                raise _UnreadableError(f"{name_of(node)} of a value that is broadcast")
            self.inlined.add(node.name)
            return self.term(read, sizes)
        if not mine and is_tensor(base_of(node)):
            return self._operand(node, space), 1
        if name_of(node) == "expand" and isinstance(read := node.args[0], Node):
            self.inlined.add(node.name)
            return self.term(read, space)
        if not is_pointwise(node):
            raise _UnreadableError(f"{name_of(node)} within an epilogue")
        if not any(each.meta["val"].dtype.is_floating_point for each in (self._product, node)):
            raise _UnreadableError(f"{name_of(node)} of whole numbers")
        self.inlined.add(node.name)
        return self._call(node, space)

    def _call(self, node: Node, space: Sequence[Any]) -> tuple[Term, int]:
        """Return the call of a pointwise node; conversions between floats are left out, as all is computed in fp32."""
        name = name_of(node)
        values = [self._value(argument, space) for argument in node.args if argument is not None]
        count = 1 + sum(size for _, size in values)
        terms = [term for term, _ in values]
        if name in ("convert_element_type", "_to_copy", "clone"):
            found, read = node.meta["val"].dtype, node.args[0]
            was_bool = isinstance(read, Node) and read.meta["val"].dtype is torch.bool
            if found not in _DTYPES or (found is torch.bool) is not was_bool:
                raise _UnreadableError(f"a conversion to {found}")
            return values[0]
        if name == "clamp":
            low, high = [*node.args[1:], None, None][:2]
            bounded = terms[0]
            for op, bound in (("maximum", low), ("minimum", high)):
                if bound is not None:
                    bounded = Call(op, (bounded, self._value(bound, space)[0]))
            return bounded, count
        if name == "rsub":
            name, terms = "sub", terms[::-1]
        if name == "square":
            name, terms = "mul", terms * 2
        scale = node.kwargs.get("alpha", 1)
        if name not in _SAME:
            raise _UnreadableError(f"{name}, no known name")
        if other := set(node.kwargs) - {"alpha"}:
            raise _UnreadableError(f"{name} with {', '.join(sorted(other))}")
        if scale != 1:
            terms[1] = Call("mul", (terms[1], _number(scale)))
        return Call(_SAME[name], tuple(terms)), count

    def _value(self, argument: object, space: Sequence[Any]) -> tuple[Term, int]:
        if not isinstance(argument, Node):
            return (0.0, 0) if isinstance(argument, torch.dtype | torch.memory_format) else (_number(argument), 1)
        if not isinstance(argument.meta.get("val"), torch.Tensor):
            raise _UnreadableError("a number that is known at run time")
        return self.term(argument, space)

    def _operand(self, node: Node, space: Sequence[Any]) -> Operand:
        """Return the operand of a tensor that exists before the epilogue runs."""
        value = node.meta["val"]
        dtype = _DTYPES.get(value.dtype)
        if dtype is None:
            raise _UnreadableError(f"a tensor of {value.dtype}")
        shape, transposed, block = self._layout(value, space)
        self.inlined.update(view.name for view in views_of(node))
        key = (base_of(node), shape, transposed, block, value.storage_offset())
        if key not in self._operands:
            relative = "" if value.dtype == self.dtype_left_out else dtype
            self._operands[key] = Operand(shape, len(self.tensors) + 1, relative, transposed, block)
            self.tensors[self._operands[key]] = node
        return self._operands[key]

    def _layout(self, value: torch.Tensor, space: Sequence[Any]) -> tuple[OperandShape, bool, int]:
        """Return how a tensor is broadcast, whether it is transposed, and the rows of a gate's block."""
        missing = len(space) - value.dim()
        strides: list[Any] = [0] * missing + [
            0 if are_equal(size, 1) else stride for size, stride in zip(value.shape, value.stride(), strict=True)
        ]
        if len(self._shape) == 2 and (block := _block_of(space, strides, self._shape[1])):
            if not _FUSES_BLOCKS:
                raise _UnreadableError(f"a vector per {block} rows, which torch 2.11 fuses into no product")
            return OperandShape.GATE, False, block
        groups = _grouped(space, strides, self._shape)
        (rows, of_row), (columns, of_column) = groups[-2:]
        of_batch = groups[0][1] if len(groups) > 2 else None  # None where there is one element
        batch = groups[0][0] if len(groups) > 2 else 1
        of_row, of_column, of_batch = (
            None if are_equal(size, 1) else stride
            for size, stride in ((rows, of_row), (columns, of_column), (batch, of_batch))
        )
        patterns = {
            (OperandShape.SCALAR, False): (0, 0, 0),
            (OperandShape.ROW, False): (0, 0, 1),
            (OperandShape.COLUMN, False): (rows, 1, 0),
            (OperandShape.MATRIX, False): (rows * columns, columns, 1),
            (OperandShape.MATRIX, True): (rows * columns, 1, rows),
            (OperandShape.ROWS, False): (columns, 0, 1),
        }
        for kind, wanted in patterns.items():
            found = zip((of_batch, of_row, of_column), wanted, strict=True)
            if all(stride is None or are_equal(stride, expected) for stride, expected in found):
                return *kind, 0
        raise _UnreadableError("a tensor with other strides than rows or columns one after another")


def _block_of(space: Sequence[Any], strides: Sequence[Any], columns: Any) -> int:  # noqa: ANN401 (a size)
    """Return the rows that share a vector of a tensor, as those of a sample share its gate; 0 for another tensor."""
    found = [(size, stride) for size, stride in zip(space, strides, strict=True) if not are_equal(size, 1)]
    merged, block = 1, 1
    while found and not are_equal(merged, columns):
        size, stride = found.pop()
        if not are_equal(stride, merged):
            return 0
        merged = merged * size
    while found and are_equal(found[-1][1], 0):
        block = block * found.pop()[0]
    if not found or not isinstance(block, int) or block == 1:
        return 0
    outer = found[-1][1]
    for size, stride in reversed(found):
        if not are_equal(stride, outer):
            return 0
        outer = outer * size
    return block if are_equal(merged, columns) else 0


def _grouped(space: Sequence[Any], strides: Sequence[Any], shape: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return size and stride of each dimension of the product, from an index space of its elements.

    Dimensions of the space are merged from the last on until they have the size of the product's dimension; the first
    dimension takes the rest.
    """
    found: list[tuple[Any, Any]] = []
    position = len(space)
    for number, size in reversed(list(enumerate(shape))):
        merged, stride = 1, None
        while position and (number == 0 or not are_equal(merged, size)):
            position -= 1
            if are_equal(space[position], 1):
                continue
            own = strides[position]
            if stride is None:
                stride = own
            elif not are_equal(own, stride * merged):
                raise _UnreadableError("a tensor that no two strides describe")
            merged = merged * space[position]
        if number and not are_equal(merged, size):
            raise _UnreadableError("a view that does not keep rows and columns apart")
        found.insert(0, (size, 0 if stride is None else stride))
    return found


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _UnreadableError(f"the constant {value!r}")
    return float(value)
