from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmtune.engine.records.epilogue.chain import Output, epilogue_of
from gemmtune.engine.records.epilogue.terms import OPERATIONS, Call, Operand, OperandShape, Product
from gemmtune.engine.records.epilogue.text import parse_epilogue

OPERANDS = st.builds(
    lambda shape, number, dtype, block: Operand(shape, number, dtype, block=block if shape == "gate" else 0),
    st.sampled_from(OperandShape),
    st.integers(1, 3),
    st.sampled_from(["", "fp32", "bool"]),
    st.integers(1, 3),
)
TERMS = st.recursive(
    st.one_of(st.just(Product()), OPERANDS, st.floats(-1e6, 1e6)),
    lambda inner: st.sampled_from(sorted(OPERATIONS)).flatmap(
        lambda op: st.builds(Call, st.just(op), st.tuples(*[inner] * OPERATIONS[op]))
    ),
    max_leaves=6,
)


@given(st.lists(st.builds(Output, st.builds(Call, st.just("add"), st.tuples(st.just(Product()), TERMS))), max_size=2))
def test_a_text_reads_back_to_its_epilogue(outputs: list[Output]):
    epilogue = epilogue_of(outputs)
    assert parse_epilogue(str(epilogue)) == epilogue


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("none", "none"),
        ("x", "none"),
        (" ReLU ", "relu"),
        ("matrix.add(x).relu", "add(matrix).relu"),
        ("mul(silu(matrix))", "mul(matrix.silu)"),
        ("mul(matrix.mul(x.sigmoid))", "mul(x.sigmoid.mul(matrix))"),
        ("sub(1.0, x)", "sub(1,x)"),
        ("add(matrix7).mul(matrix7)", "add(matrix).mul(matrix)"),
        ("add(matrix2).mul(matrix)", "add(matrix).mul(matrix2)"),
        ("mul(matrix[t,fp32])", "mul(matrix[fp32,t])"),
        ("mul(0.50).to(fp32)", "mul(0.5).to(fp32)"),
        ("mul(gate[64]).add(matrix)", "mul(gate[64]).add(matrix)"),
        ("mul(gate3[12,fp32]).add(gate[8])", "mul(gate[12,fp32]).add(gate2[8])"),
        ("x + relu + relu", "relu+x"),
        ("to(fp32)", "to(fp32)"),
        ("where(matrix.le(0),0,x)", "relu_backward(matrix)"),
        ("div(x.neg.exp.add(1)).mul(matrix)", "silu.mul(matrix)"),
        ("mul(x.mul(0.7071067811865476).erf.add(1)).mul(0.5)", "mul(x.mul(0.7071067811865476).erf.add(1)).mul(0.5)"),
        ("mul(0.5).mul(x.mul(0.7071067811865476).erf.add(1))", "gelu"),
        ("add(row).mul(0.5).mul(x.add(row).mul(0.7071067811865476).erf.add(1))", "add(row).gelu"),
    ],
)
def test_equal_code_has_one_text(text: str, normal: str):
    assert str(parse_epilogue(text)) == normal
    assert str(parse_epilogue(normal)) == normal


def test_operands_are_listed_once_in_the_order_of_the_text():
    epilogue = parse_epilogue("add(matrix).mul(row[fp32]).mul(matrix2.silu)+add(matrix)")
    assert [(o.shape.value, o.number, o.dtype) for o in epilogue.operands] == [
        ("matrix", 1, ""),
        ("row", 1, "fp32"),
        ("matrix", 2, ""),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gelux", "'gelux' is no operation; did you mean gelu? known: abs, add, "),
        ("relu(1,2)", "relu takes 0 arguments behind its value, not 2"),
        ("relu(", "a name is missing before 'the end'"),
        ("relu)", "')' is not expected there"),
        ("add(matrix", "')' is missing before 'the end'"),
        ("matrix", "does not use the product"),
        ("mul(silu)", "silu within an argument says what it is of, as in x.silu or matrix.silu"),
        ("mul(x.to(fp32))", "`to` ends an output"),
        ("to(fp64)", "'fp64' is no type of an output; known: bf16, fp16, fp32"),
        ("add(row[t])", "a row has no layout: leave out t"),
        ("add(matrix[fp64])", "'fp64' is no type of an operand; known: bf16, fp16, fp32, bool, and t"),
        ("mul(gate)", "a gate says how many rows each of its vectors is for, as in gate[4096]"),
        ("mul(gate[fp32])", "a gate says how many rows each of its vectors is for, as in gate[4096]"),
        ("mul(gate[0])", "a gate says how many rows"),
        ("mul(gate[4,t])", "a gate has no layout: leave out t"),
        ("mul(row[4])", "a name is missing before '4'"),
        ("sin" + ".sin" * 24, "an epilogue of 25 operations is longer than 24"),
        ("sin" + ".sin" * 9999, "19999 names and signs are more than 500"),
        ("add(" * 99, "more than 32 arguments stand within each other"),
    ],
)
def test_a_bad_text_is_refused_with_its_value_and_the_way_out(text: str, message: str):
    with pytest.raises(ValueError, match=r"epilogue") as caught:
        parse_epilogue(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 800
