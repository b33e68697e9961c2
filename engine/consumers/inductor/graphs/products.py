"""Products of a callable and the guards on its m, as the installed torch sees them. Needs torch, and no GPU.

AOTAutograd's graphs are recorded before Inductor lowers them, with tensors on the meta device.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gemmtune.engine.consumers.inductor.graphs.layers import PADDED_DTYPES, Product, Question
from gemmtune.engine.consumers.inductor.inputs import InputSpec, OpenSize, parse_inputs
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.gemm.terms import DType, Op
from gemmtune.engine.toolchain.releases import TORCH_VERSIONS, installed_torch, release_of

if TYPE_CHECKING:
    import torch

_MOST_GRAPHS = 32
_OPS = ("mm", "addmm", "bmm", "_grouped_mm", "_scaled_grouped_mm")


@dataclass(frozen=True, slots=True)
class TracedProduct:
    """One product of a graph. A size is a number, or an expression of `m`."""

    role: str
    """Part of the graph: `forward` or `backward`."""
    op: str
    """Operation: mm, addmm, bmm, grouped_mm or scaled_grouped_mm."""
    m: str
    """Rows of the first factor."""
    k: str
    """Columns of the first factor."""
    n: str
    """Columns of the second factor."""
    layout: str
    """Layouts of both factors, as in a problem's name."""

    def __str__(self) -> str:
        """Return a text such as `forward mm(m×4096, 4096×6144)`."""
        return f"{self.role} {self.op}({self.m}×{self.k}, {self.k}×{self.n})"

    @property
    def product(self) -> Product | None:
        """Product whose guards are known; None for a batch, groups, a fixed m, and an m that is an expression."""
        sizes = [None if size == "m" else int(size) if size.isdecimal() else 0 for size in (self.m, self.k, self.n)]
        if self.op not in (Op.MM, Op.ADDMM) or sizes.count(None) != 1 or 0 in sizes:
            return None
        m, k, n = sizes
        return Product(self.role, m, k, n, self.layout, (Op(self.op),))


@dataclass(frozen=True, slots=True)
class Traced:
    """One graph that torch compiles for a range of m."""

    first: int
    """Least m that the graph serves, as far as the model's code decides."""
    last: int | None
    """Greatest m that the graph serves; None without an end."""
    guards: tuple[str, ...]
    """Conditions on m that the model's own code set."""
    products: tuple[TracedProduct, ...]
    """Products of the graph, without repetitions."""


def dynamic_inputs(texts: Sequence[str]) -> tuple[tuple[InputSpec, ...], OpenSize]:
    """Return the inputs that texts describe, and their open size.

    Raises:
        UsageError: a text is malformed, or there is another number of open sizes than one.
    """
    specs, opened = parse_inputs(texts)
    if len(opened) != 1:
        number = len(opened) or "none"
        raise UsageError(f"one size of the inputs is open, and here {number} is: --input bf16[m:1..4096,4096]")
    return specs, opened[0]


def dtype_of(inputs: Sequence[InputSpec]) -> DType:
    """Return the element type of the first input of floats; bf16 where all are integers.

    Raises:
        UsageError: the guards of its products are not known.
    """
    name = next((each.dtype for each in inputs if "float" in each.dtype), DType.BF16.torch_name)
    found = next((dtype for dtype in PADDED_DTYPES if dtype.torch_name == name), None)
    if found is None:
        raise UsageError(f"the guards of {name} products are not known; known: {', '.join(PADDED_DTYPES)}")
    return found


def trace(
    call: Callable[..., object], inputs: Sequence[InputSpec], size: OpenSize, *, grad: bool
) -> tuple[Traced, ...]:
    """Trace the graphs of a callable for the open size from 2 on, cut where its own code depends on it.

    Args:
        call: a torch module to move to the meta device, or a function.
        inputs: tensors of the call; the first of floats has the module's element type.
        size: open size.
        grad: whether inputs and parameters need gradients.

    Raises:
        UsageError: the callable fails on such inputs; the message says how.
    """
    import torch

    if isinstance(call, torch.nn.Module):
        call = call.to("meta", getattr(torch, dtype_of(inputs).torch_name)).requires_grad_(grad)
    found: list[Traced] = []
    first: int | None = max(2, size.first)
    while first is not None and first <= size.last and len(found) < _MOST_GRAPHS:
        found.append(_traced(call, inputs, size, grad, first))
        last = found[-1].last
        first = None if last is None else max(first, last) + 1
    return tuple(found)


def asked_by_torch(product: Product, version: str, m: int) -> Iterator[Question]:
    """Yield the questions that Inductor's own function asks of a product in a graph compiled at `m`.

    Args:
        product: a product with one dynamic size.
        version: version of torch whose first two parts must be installed.
        m: size that is seen first.

    Raises:
        UsageError: torch is not installed, or has another version.
    """
    if release_of(installed_torch()) != release_of(version):
        known = ", ".join(TORCH_VERSIONS)
        raise UsageError(f"the guards of torch {version} are not known without it; known: {known}")
    import torch
    from torch._dynamo.source import ConstantSource
    from torch._inductor.codegen.triton import TritonScheduling
    from torch._inductor.graph import GraphLowering
    from torch._inductor.ir import Buffer, FixedLayout
    from torch._inductor.virtualized import V
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

    shapes = ShapeEnv()
    symbol = shapes.create_symbol(m, ConstantSource("m"), DimDynamic.DYNAMIC)
    rows, k, n = (symbol if size is None else size for size in (product.m, product.k, product.n))
    with V.set_graph_handler(GraphLowering(torch.fx.symbolic_trace(lambda x: x), shape_env=shapes)):
        layouts = [FixedLayout(torch.device("cuda"), torch.bfloat16, list(s)) for s in ((rows, k), (k, n), (rows, n))]
        buffers = [Buffer(name=f"buffer{i}", layout=layout) for i, layout in enumerate(layouts)]
        TritonScheduling.can_use_32bit_indexing(rows * n, buffers)
    for guard in shapes.guards:

        def holds(size: int, condition: Any = guard.expr) -> bool:  # noqa: ANN401 (sympy's)
            return bool(condition.subs(symbol, size))

        yield Question(_named(guard.expr), holds, "torch/_inductor/codegen/simd.py: can_use_32bit_indexing")


def _traced(call: Callable[..., object], inputs: Sequence[InputSpec], size: OpenSize, grad: bool, m: int) -> Traced:
    """Trace the graph of a first call with `m` rows."""
    import torch
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch._aot_autograd.utils import make_boxed_func
    from torch._guards import TracingContext

    products: dict[TracedProduct, None] = {}
    shapes: list[Any] = []

    def recorder(role: str) -> Callable[..., Any]:
        def record(module: torch.fx.GraphModule, inputs: Sequence[object]) -> Any:  # noqa: ANN401 (torch's protocol)
            shapes.append(getattr(TracingContext.get().fake_mode, "shape_env", None))
            products.update(dict.fromkeys(_products(module, role)))
            return make_boxed_func(module.forward)

        return record

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=recorder("forward"), bw_compiler=recorder("backward"))
    tensors = [each.make({size.name: m}, torch.device("meta")) for each in inputs]
    for spec, tensor in zip(inputs, tensors, strict=True):
        tensor.requires_grad_(grad and tensor.is_floating_point())
        for dimension in [place for place, each in enumerate(spec.sizes) if each == size.name]:
            torch._dynamo.maybe_mark_dynamic(tensor, dimension)
    positional = [tensor for spec, tensor in zip(inputs, tensors, strict=True) if not spec.name]
    named = {spec.name: tensor for spec, tensor in zip(inputs, tensors, strict=True) if spec.name}
    try:
        with torch.set_grad_enabled(grad):
            torch.compile(call, backend=backend)(*positional, **named)
    except Exception as error:
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        raise UsageError(f"the callable failed on inputs with m={m} on the meta device: {first_line}") from None
    if not shapes or shapes[-1] is None:
        raise UsageError(f"torch compiled no graph of the callable with m={m}: it has no product of its inputs")
    guards, first, last = _bounds(shapes[-1], m)
    return Traced(first, last, guards, tuple(products))


def _products(module: torch.fx.GraphModule, role: str) -> Iterator[TracedProduct]:
    for node in module.graph.nodes:
        op = str(node.target).split(".")[1] if str(node.target).startswith("aten.") else ""
        if op in _OPS:
            a, b = (argument.meta["val"] for argument in node.args[op == "addmm" :][:2])
            m, k, n = (_named(size) for size in (a.shape[-2], a.shape[-1], b.shape[-1]))
            layout = "".join("n" if x.stride()[-1] == 1 else "t" for x in (a, b))
            yield TracedProduct(role, op.lstrip("_"), m, k, n, layout)


def _bounds(shapes: Any, m: int) -> tuple[tuple[str, ...], int, int | None]:  # noqa: ANN401 (torch's ShapeEnv)
    """Return the guards on the only symbol, and the first and last size that keep them."""
    symbols = {symbol for guard in shapes.guards for symbol in guard.expr.free_symbols}
    symbols = symbols or {s for s, its in shapes.var_to_range.items() if its.lower != its.upper}
    if not symbols:
        return (), m, m  # the code uses m as a constant
    symbol = min(symbols, key=str)
    bounds = shapes.bound_sympy(symbol)
    asked = tuple(dict.fromkeys(_named(guard.expr) for guard in shapes.guards))
    return asked, int(bounds.lower), int(bounds.upper) if bounds.upper < 2**62 else None


def _named(size: object) -> str:
    """Return a size or condition as text, with `m` for torch's symbol."""
    return re.sub(r"\bs\d+\b", "m", str(size)).replace("*", "·")
