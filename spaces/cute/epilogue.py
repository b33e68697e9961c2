"""Epilogues within kernels of CuTe DSL: the value of each output's element, in fp32. Imports cutlass."""

from collections.abc import Callable, Mapping
from typing import Any

import cutlass
from cutlass import Float32, cute

from gemmtune.engine.records.epilogue.activations import expanded
from gemmtune.engine.records.epilogue.chain import Epilogue
from gemmtune.engine.records.epilogue.terms import Call, Operand, Product, Term

__all__ = ["computed"]


def computed(epilogue: Epilogue, product: Float32, operands: Mapping[Operand, Float32]) -> tuple[Float32, ...]:
    """Return an element of each output of an epilogue, for an element of the product.

    Args:
        epilogue: operations to compute; without any, the result is the product.
        product: element of the product.
        operands: element of each operand of the epilogue, as fp32.
    """
    values: dict[Term, Any] = {Product(): product, **operands}

    def value(term: Term) -> Any:  # noqa: ANN401 (Float32, or Boolean)
        if isinstance(term, float):
            return Float32(term)
        if term not in values:
            assert isinstance(term, Call)
            values[term] = _OPERATIONS[term.op](*map(value, term.arguments))
        return values[term]

    return tuple(value(expanded(output.term)) for output in epilogue.outputs) or (product,)


def _where(condition: Any, one: Float32, other: Float32) -> Float32:  # noqa: ANN401 (Boolean)
    return Float32(cutlass.select_(condition, one, other))


def _sigmoid(x: Float32) -> Float32:
    return Float32(1.0) / (Float32(1.0) + cute.math.exp(-x, fastmath=True))


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "abs": cute.math.absf,
    "add": lambda x, y: x + y,
    "cos": cute.math.cos,
    "div": lambda x, y: x / y,
    "eq": lambda x, y: x == y,
    "erf": cute.math.erf,
    "exp": lambda x: cute.math.exp(x, fastmath=True),
    "exp2": lambda x: cute.math.exp2(x, fastmath=True),
    "floor": cute.math.floor,
    "ge": lambda x, y: x >= y,
    "gt": lambda x, y: x > y,
    "le": lambda x, y: x <= y,
    "log": cute.math.log,
    "log1p": lambda x: cute.math.log(x + Float32(1.0)),
    "log2": cute.math.log2,
    "lt": lambda x, y: x < y,
    "maximum": lambda x, y: cute.arch.fmax(x, y),
    "minimum": lambda x, y: cute.arch.fmin(x, y),
    "mul": lambda x, y: x * y,
    "ne": lambda x, y: x != y,
    "neg": lambda x: -x,
    "pow": cute.math.pow,
    "reciprocal": lambda x: Float32(1.0) / x,
    "relu": lambda x: cute.arch.fmax(x, Float32(0.0)),
    "rsqrt": cute.math.rsqrt,
    "sigmoid": _sigmoid,
    "sin": cute.math.sin,
    "sqrt": cute.math.sqrt,
    "sub": lambda x, y: x - y,
    "tanh": cute.math.tanh,
    "where": _where,
}
"""Operations of an epilogue, by name, on elements in fp32."""
