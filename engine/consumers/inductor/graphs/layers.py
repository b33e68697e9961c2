"""Products of a linear layer or a model, with one dynamic size, and the questions that torch asks of that size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import DType, Layout, Op
from gemmtune.engine.records.workload import Workload

PADDED_DTYPES = (DType.BF16, DType.FP16, DType.FP32)
"""Element types of layers whose guards are known."""


class Question(NamedTuple):
    """A question that Inductor asks of the dynamic size while it compiles a graph."""

    text: str
    """Question with its numbers, such as `K > M, m > 1280`."""
    holds: Callable[[int], bool]
    """Answer for a size; it changes at one size at most."""
    source: str
    """File and function of torch that ask."""


@dataclass(frozen=True, slots=True)
class Product:
    """Product of an m×k and a k×n matrix; None stands for the dynamic size."""

    role: str
    """Part of a layer or model that the product computes, such as `forward`."""
    m: int | None
    """Rows of the first factor."""
    k: int | None
    """Columns of the first factor."""
    n: int | None
    """Columns of the second factor."""
    layout: str = "nt"
    """Layouts of both factors, as in a problem's name."""
    ops: tuple[Op, ...] = (Op.MM,)
    """Operations that the product may be: a bias makes it an addmm."""

    def __str__(self) -> str:
        """Return a text such as `forward mm(m×3420, 3420×1280)`."""
        m, k, n = ("m" if size is None else size for size in (self.m, self.k, self.n))
        return f"{self.role} mm({m}×{k}, {k}×{n})"

    def sizes(self, dynamic: int) -> tuple[int, int, int]:
        """Return (m, k, n) with a value for the dynamic size."""
        m, k, n = (dynamic if size is None else size for size in (self.m, self.k, self.n))
        return m, k, n


@dataclass(frozen=True, slots=True)
class Linear:
    """A linear layer and its compiled products. A bias changes none of its guards."""

    inputs: int
    """Number of input features, the k of the forward product."""
    outputs: int
    """Number of output features, the n of the forward product."""
    dtype: DType
    """Element type of input, weight and output; one of PADDED_DTYPES."""
    weight_grad: bool = True
    """Whether the weight needs a gradient."""
    input_grad: bool = False
    """Whether the input needs a gradient, as within a model."""

    def __post_init__(self) -> None:
        """Refuse sizes below 1."""
        if min(self.inputs, self.outputs) < 1:
            raise UsageError(f"a layer {self.inputs}:{self.outputs} has no product; both sizes start at 1")

    def products(self) -> Iterator[Product]:
        """Yield the forward product and those of the gradients that are needed."""
        yield Product("forward", None, self.inputs, self.outputs, "nt", (Op.MM, Op.ADDMM))
        if self.weight_grad:
            yield Product("weight gradient", self.outputs, None, self.inputs, "tn")
        if self.input_grad:
            yield Product("input gradient", None, self.outputs, self.inputs, "nn")

    def has_forward(self, workload: Workload) -> bool:
        """Return whether a GEMM is the layer's forward product."""
        problem = workload
        return (
            isinstance(problem, Problem)
            and (problem.k, problem.n) == (self.inputs, self.outputs)  # first: a table has many other sizes
            and problem.op in (Op.MM, Op.ADDMM)
            and (problem.a_layout, problem.b_layout) == (Layout.N, Layout.T)
            and problem.a_dtype == problem.b_dtype == problem.out_dtype == self.dtype
        )


def layers_of(workloads: Iterable[Workload], *, weight_grad: bool, input_grad: bool) -> tuple[Linear, ...]:
    """Return the layers whose forward products are among workloads, in their order."""
    problems = (problem for problem in workloads if isinstance(problem, Problem) and problem.a_dtype in PADDED_DTYPES)
    layers = ((problem, Linear(problem.k, problem.n, problem.a_dtype, weight_grad, input_grad)) for problem in problems)
    return tuple(dict.fromkeys(layer for problem, layer in layers if layer.has_forward(problem)))
