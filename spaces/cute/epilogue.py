"""Epilogues within kernels of CuTe DSL: the value of each output's element, in fp32. Imports cutlass."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import cutlass
from cutlass import Float32, cute

from gemmtune.engine.records.epilogue.chain import Epilogue
from gemmtune.engine.records.epilogue.terms import Operand, Product, Term, evaluated, expanded

_math: Any = cute.math  # its functions come from a module that a type checker does not follow


def computed(epilogue: Epilogue, product: Float32, operands: Mapping[Operand, Float32]) -> tuple[Float32, ...]:
    """Return an element of each output of an epilogue, for an element of the product.

    Args:
        epilogue: operations to compute; without any, the result is the product.
        product: element of the product.
        operands: element of each operand of the epilogue, as fp32.
    """
    values: dict[Term, Any] = {operand: element for operand, element in operands.items()}  # noqa: C416 (wider keys)
    values[Product()] = product
    outputs = (evaluated(expanded(o.term), values, Float32, _OPERATIONS.__getitem__) for o in epilogue.outputs)
    return tuple(outputs) or (product,)


def _quotient(x: Float32, y: Float32) -> Float32:
    """Return x / y within 2 units in the last place, as Triton does; the DSL's own division calls a function."""
    return Float32(_math.div(x, y, full=True))


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "abs": _math.absf,
    "add": lambda x, y: x + y,
    "cos": _math.cos,
    "div": _quotient,
    "eq": lambda x, y: x == y,
    "erf": _math.erf,
    "exp": lambda x: _math.exp(x, fastmath=True),
    "exp2": lambda x: _math.exp2(x, fastmath=True),
    "floor": _math.floor,
    "ge": lambda x, y: x >= y,
    "gt": lambda x, y: x > y,
    "le": lambda x, y: x <= y,
    "log": _math.log,
    "log1p": _math.log1p,
    "log2": _math.log2,
    "lt": lambda x, y: x < y,
    "maximum": partial(cute.arch.fmax, nan=True),  # a NaN stays one, as in torch
    "minimum": partial(cute.arch.fmin, nan=True),
    "mul": lambda x, y: x * y,
    "ne": lambda x, y: x != y,
    "neg": lambda x: -x,
    "pow": _math.pow,
    "reciprocal": partial(_quotient, Float32(1.0)),
    "relu": lambda x: cute.arch.fmax(x, 0.0, nan=True),
    "rsqrt": _math.rsqrt,
    "sigmoid": lambda x: _quotient(Float32(1.0), Float32(1.0) + _math.exp(-x, fastmath=True)),
    "sin": _math.sin,
    "sqrt": _math.sqrt,
    "sub": lambda x, y: x - y,
    "tanh": _math.tanh,
    "where": lambda condition, one, other: Float32(cutlass.select_(condition, one, other)),
}
"""Operations of an epilogue, by name, on elements in fp32."""
