"""Properties of an epilogue's terms that decide where it may run."""

from __future__ import annotations

import pytest

from gemmtune.engine.records.epilogue.chain import MOST_OPERATIONS, epilogue_of, relative_to, steps_of
from gemmtune.engine.records.gemm.problem import Problem


def epilogue(text):
    return Problem.parse(f"16x32x64:bf16:nt:epilogue={text}").epilogue


@pytest.mark.parametrize(
    ("text", "is_cheap"),
    [
        ("relu", True),
        ("add(matrix)", True),  # one matrix, as of a residual
        ("add(matrix).add(matrix2)", False),  # two
        ("add(matrix[t])", False),  # its columns lie one after another
        ("add(row).mul(column).mul(scalar)", True),  # no matrix, whatever their number
        ("add(row).mul(column).mul(scalar).relu", True),  # four operations
        ("add(row).mul(column).mul(scalar).relu.neg", False),  # five
        ("silu", False),  # an exponential
        ("relu+x", False),  # two outputs
    ],
)
def test_an_epilogue_is_cheap_up_to_four_simple_operations_one_matrix_and_one_output(text, is_cheap):
    assert epilogue(text).is_cheap is is_cheap


@pytest.mark.parametrize(
    ("text", "operations", "operands", "stores_product"),
    [
        ("relu+x", ("relu",), (), True),
        ("relu", ("relu",), (), False),
        ("add(matrix).mul(matrix)", ("mul", "add"), ("matrix",), False),
        ("mul(row).add(row2)", ("add", "mul"), ("row", "row2"), False),
    ],
)
def test_operations_count_each_call_and_operands_each_tensor_once(text, operations, operands, stores_product):
    found = epilogue(text)
    assert sorted(found.operations) == sorted(operations)
    assert tuple(sorted(operand.name for operand in found.operands)) == operands
    assert found.stores_product is stores_product


def test_steps_write_the_formulas_of_activations_out():
    assert steps_of(epilogue("relu")) == 1
    assert steps_of(epilogue("silu")) > 1
    assert steps_of(epilogue("silu+silu.neg")) == 2 * steps_of(epilogue("silu")) + 1


def test_types_of_the_products_output_are_left_out():
    found = relative_to(epilogue("add(matrix[fp32]).to(fp32)"), "fp32")
    assert str(found) == "add(matrix)"
    assert epilogue_of(found.outputs) == found
    assert MOST_OPERATIONS == 24
