"""Terms of an epilogue: their values, their texts, and the formulas of activations."""

from __future__ import annotations

import math

import pytest

from gemmtune.engine.records.epilogue.chain import Output, epilogue_of
from gemmtune.engine.records.epilogue.terms import (
    COMMUTATIVE,
    OPERATIONS,
    Call,
    Operand,
    OperandShape,
    Product,
    activation_of,
    evaluated,
    expanded,
    term_text,
)

X, SAVED = Product(), Operand(OperandShape.MATRIX)
ARITHMETIC = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "le": lambda a, b: a <= b,
    "where": lambda condition, a, b: a if condition else b,
    "neg": lambda a: -a,
    "reciprocal": lambda a: 1 / a,
    "sigmoid": lambda a: 1 / (1 + math.exp(-a)),
    "exp": math.exp,
    "erf": math.erf,
    "tanh": math.tanh,
}
ACTIVATIONS = {
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: max(x, 0.0),
}


def value(term, x, saved=0.0):
    return evaluated(term, {X: x, SAVED: saved}, float, ARITHMETIC.__getitem__)


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh"])
def test_the_formula_of_an_activation_computes_it_and_is_known_by_its_name(name):
    formula = expanded(Call(name, (X,)))
    for x in (-2.5, -0.3, 0.0, 0.7, 3.0):
        assert value(formula, x) == pytest.approx(ACTIVATIONS[name](x), abs=1e-9)
    assert activation_of(formula) == Call(name, (X,))
    assert str(epilogue_of([Output(formula)])) == name


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_formula_of_a_backward_pass_is_the_slope_times_the_gradient(name):
    formula = expanded(Call(f"{name}_backward", (X, SAVED)))
    for saved in (-2.5, -0.3, 0.7, 3.0):
        slope = (ACTIVATIONS[name](saved + 1e-5) - ACTIVATIONS[name](saved - 1e-5)) / 2e-5
        assert value(formula, 1.5, saved) == pytest.approx(1.5 * slope, rel=1e-5, abs=1e-6)
    assert activation_of(formula) == Call(f"{name}_backward", (X, SAVED))


def test_earlier_releases_write_the_sigmoid_of_a_backward_pass_otherwise():
    exponential = Call("add", (Call("exp", (Call("neg", (SAVED,)),)), 1.0))
    sigmoid = Call("mul", (Call("reciprocal", (exponential,)), 1.0))
    slope = Call("add", (Call("mul", (SAVED, Call("sub", (1.0, sigmoid)))), 1.0))
    assert activation_of(Call("mul", (Call("mul", (X, sigmoid)), slope))) == Call("silu_backward", (X, SAVED))


def test_a_formula_is_known_in_any_order_of_its_operands_and_of_any_value():
    def swapped(term):
        if not isinstance(term, Call):
            return term
        arguments = tuple(map(swapped, term.arguments))
        return Call(term.op, arguments[::-1] if term.op in COMMUTATIVE else arguments)

    row = Operand(OperandShape.ROW)
    inner = Call("add", (X, row))
    for name in ("gelu", "gelu_tanh", "silu"):
        assert activation_of(swapped(expanded(Call(name, (X,))))) == Call(name, (X,))
        assert activation_of(expanded(Call(name, (inner,)))) == Call(name, (inner,))
    backward = swapped(expanded(Call("gelu_backward", (inner, row))))
    assert activation_of(backward) == Call("gelu_backward", (Call("add", (row, X)), row))


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh"])
def test_a_formula_with_another_number_or_two_values_of_x_is_no_activation(name):
    formula = expanded(Call(name, (X,)))

    def changed(term, old, new):
        if isinstance(term, Call):
            return Call(term.op, tuple(changed(each, old, new) for each in term.arguments))
        return new if term == old else term

    for other in (changed(formula, 1.0, 2.0), Call(formula.op, (formula.arguments[0], SAVED))):
        assert activation_of(other) == other
    first, *rest = formula.arguments
    two = Call(formula.op, (changed(first, X, SAVED), *rest))
    assert activation_of(two) == two


def test_an_operation_that_is_read_twice_is_computed_once():
    computed = []

    def operation(name):
        computed.append(name)
        return ARITHMETIC[name]

    half = Call("mul", (X, 0.5))
    values = {X: 3.0}
    assert evaluated(Call("add", (half, Call("exp", (half,)))), values, float, operation) == 1.5 + math.exp(1.5)
    assert sorted(computed) == ["add", "exp", "mul"]
    assert values[half] == 1.5
    assert evaluated(2.0, {}, lambda number: f"number {number}", operation) == "number 2.0"


@pytest.mark.parametrize(
    ("term", "text"),
    [
        (X, "x"),
        (SAVED, "matrix"),
        (Operand(OperandShape.ROW, 2), "row2"),
        (Operand(OperandShape.MATRIX, 1, "fp32", transposed=True), "matrix[fp32,t]"),
        (Operand(OperandShape.MATRIX, 3, transposed=True), "matrix3[t]"),
        (Operand(OperandShape.SCALAR, 1, "bool"), "scalar[bool]"),
        (Operand(OperandShape.GATE, 2, "fp32", block=64), "gate2[64,fp32]"),
        (Call("relu", (X,)), "x.relu"),
        (Call("add", (X, SAVED)), "x.add(matrix)"),
        (Call("sub", (1.0, X)), "sub(1,x)"),
        (Call("where", (SAVED, 0.0, X)), "matrix.where(0,x)"),
        (Call("mul", (Call("neg", (X,)), Call("silu", (SAVED,)))), "x.neg.mul(matrix.silu)"),
        (0.5, "0.5"),
        (-3.0, "-3"),
        (1e14, "100000000000000"),
        (1e15, "1000000000000000.0"),
        (-1e15, "-1000000000000000.0"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
    ],
)
def test_a_term_has_a_text(term, text):
    assert term_text(term) == text


def test_operands_have_the_rows_and_columns_of_their_shape():
    facts = {shape.value: (shape.has_rows, shape.has_columns) for shape in OperandShape}
    assert facts == {
        "matrix": (True, True),
        "row": (False, True),
        "column": (True, False),
        "scalar": (False, False),
        "gate": (False, True),
        "rows": (False, True),
    }
    assert OPERATIONS.keys() >= COMMUTATIVE
    assert all(OPERATIONS[op] == 2 for op in COMMUTATIVE)
