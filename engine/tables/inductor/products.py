"""The products of a callable, with the m of each as torch.compile sees it. Needs torch, and no GPU.

AOTAutograd's graphs, forward and backward, are looked at before Inductor has them; nothing is lowered. Tensors are on
the meta device, so that a model of any size is traced in seconds.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gemmtune.engine.records.errors import ToolchainMissing, UsageError
from gemmtune.engine.records.problem import DType, Op
from gemmtune.engine.tables.inductor.guards import Product

if TYPE_CHECKING:
    import torch

__all__ = ["Traced", "TracedProduct", "imported", "trace"]

_MOST_GRAPHS = 32
_OPS = ("mm", "addmm", "bmm")


@dataclass(frozen=True, slots=True)
class TracedProduct:
    """One product of a graph."""

    role: str
    """`forward` or `backward`."""
    op: str
    """mm, addmm or bmm."""
    m: str
    """Rows of the first factor: a number, or an expression of `m`."""
    k: str
    """Its columns."""
    n: str
    """Columns of the second factor."""
    layout: str
    """How both lie, as a problem has it."""

    def __str__(self) -> str:
        """`forward mm(m×4096, 4096×6144)`."""
        return f"{self.role} {self.op}({self.m}×{self.k}, {self.k}×{self.n})"

    @property
    def product(self) -> Product | None:
        """As Inductor's guards are known of it: None for a batch, a fixed size, and an m that is an expression."""
        sizes = [None if size == "m" else int(size) if size.isdecimal() else 0 for size in (self.m, self.k, self.n)]
        if self.op == "bmm" or sizes.count(None) != 1 or 0 in sizes:
            return None
        m, k, n = sizes
        return Product(self.role, m, k, n, self.layout, (Op(self.op),))


@dataclass(frozen=True, slots=True)
class Traced:
    """One graph that torch compiles for a range of m."""

    first: int
    """The least m that it serves, as far as the code of the model decides."""
    last: int | None
    """The greatest; None where there is no end."""
    guards: tuple[str, ...]
    """What the model's own code asked of m."""
    products: tuple[TracedProduct, ...]
    """Its products, each kind once."""


def imported(path: str) -> Callable[..., object]:
    """The callable that `module:function` names; a torch module's class is called without arguments.

    Raises:
        UsageError: there is no such module, or nothing callable of that name in it.
    """
    module, _, name = path.partition(":")
    if not name:
        raise UsageError(f"malformed callable {path!r}: expected module:function")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"cannot import {path}: {error}") from None
    if not callable(found):
        raise UsageError(f"{path} is {type(found).__name__}, which cannot be called")
    return found  # type: ignore[no-any-return]


def trace(call: Callable[..., object], inputs: Sequence[str], dtype: DType, *, grad: bool) -> tuple[Traced, ...]:
    """The graphs of a callable for every m from 2 on, cut where its own code asks m.

    Args:
        call: the callable, or a torch module or its class; it is moved to the meta device.
        inputs: the sizes of each input, `mx4096`: `m` is dynamic.
        dtype: of the inputs.
        grad: whether inputs and parameters need gradients.

    Raises:
        UsageError: a size is malformed, or the callable fails on such inputs; the message says how.
        ToolchainMissing: torch is not installed.
    """
    try:
        import torch
    except ImportError:
        raise ToolchainMissing("explaining a callable needs torch: pip install torch") from None

    if isinstance(call, type):
        with torch.device("meta"):
            call = call()
    if isinstance(call, torch.nn.Module):
        call = call.to("meta", getattr(torch, dtype.torch_name)).requires_grad_(grad)
    found: list[Traced] = []
    first: int | None = 2
    while first is not None and len(found) < _MOST_GRAPHS:
        found.append(_traced(call, [_sizes(text) for text in inputs], dtype, grad, first))
        last = found[-1].last
        first = None if last is None else max(first, last) + 1
    return tuple(found)


def _sizes(text: str) -> list[int | None]:
    if not re.fullmatch(r"(m|\d+)(x(m|\d+))*", text):
        raise UsageError(f"malformed input {text!r}: expected sizes such as mx4096")
    return [None if size == "m" else int(size) for size in text.split("x")]


@dataclass(slots=True)
class _Recorder:
    """Takes AOTAutograd's graphs in the place of a compiler."""

    products: dict[TracedProduct, None] = field(default_factory=dict)
    shapes: Any = None

    def compiler(self, role: str) -> Callable[..., Any]:
        def record(module: torch.fx.GraphModule, inputs: Sequence[object]) -> Any:  # noqa: ANN401 (torch's protocol)
            from torch._functorch._aot_autograd.utils import make_boxed_func
            from torch._guards import TracingContext

            self.shapes = getattr(TracingContext.get().fake_mode, "shape_env", None)
            for node in module.graph.nodes:
                op = str(node.target).split(".")[1] if str(node.target).startswith("aten.") else ""
                if op in _OPS:
                    a, b = (argument.meta["val"] for argument in node.args[-2:])
                    m, k, n = (_named(size) for size in (a.shape[-2], a.shape[-1], b.shape[-1]))
                    layout = "".join("n" if x.stride()[-1] == 1 else "t" for x in (a, b))
                    self.products[TracedProduct(role, op, m, k, n, layout)] = None
            return make_boxed_func(module.forward)

        return record


def _traced(call: Callable[..., object], sizes: list[list[int | None]], dtype: DType, grad: bool, m: int) -> Traced:
    import torch
    from torch._dynamo.backends.common import aot_autograd

    torch._dynamo.reset()
    recorder = _Recorder()
    backend = aot_autograd(fw_compiler=recorder.compiler("forward"), bw_compiler=recorder.compiler("backward"))
    tensors = []
    for of_input in sizes:
        shape = [m if size is None else size for size in of_input]
        made = torch.empty(shape, device="meta", dtype=getattr(torch, dtype.torch_name), requires_grad=grad)
        for dimension, size in enumerate(of_input):
            if size is None:
                torch._dynamo.maybe_mark_dynamic(made, dimension)
        tensors.append(made)
    try:
        with torch.set_grad_enabled(grad):
            torch.compile(call, backend=backend)(*tensors)
    except Exception as error:
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        raise UsageError(f"the callable failed on inputs with m={m} on the meta device: {first_line}") from None
    if recorder.shapes is None:
        raise UsageError(f"torch compiled no graph of the callable with m={m}: it has no product of its inputs")
    guards, first, last = _bounds(recorder.shapes, m)
    return Traced(first, last, guards, tuple(recorder.products))


def _bounds(shapes: Any, m: int) -> tuple[tuple[str, ...], int, int | None]:  # noqa: ANN401 (torch's ShapeEnv)
    """What was asked of the one symbol there is, and the range of it in which the answers are the same."""
    symbols = {symbol for guard in shapes.guards for symbol in guard.expr.free_symbols}
    symbols = symbols or {
        s for s in shapes.var_to_range if shapes.var_to_range[s].lower != shapes.var_to_range[s].upper
    }
    if not symbols:
        return (), m, m  # the code took m for a constant
    symbol = min(symbols, key=str)
    bounds = shapes.bound_sympy(symbol)
    asked = tuple(dict.fromkeys(_named(guard.expr) for guard in shapes.guards))
    return asked, int(bounds.lower), int(bounds.upper) if bounds.upper < 2**62 else None


def _named(size: object) -> str:
    """A size as text, torch's name of the symbol replaced by `m`."""
    return re.sub(r"\bs\d+\b", "m", str(size)).replace("*", "·")
