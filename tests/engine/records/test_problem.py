from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmtune.engine.records.epilogue.terms import OperandShape
from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import Bias, DType, Layout, Op

SIZES = st.integers(1, 2**31 - 1)
OUTPUTS = {DType.INT8: DType.INT32, DType.E4M3: DType.BF16, DType.E5M2: DType.BF16}
FLOATS = (DType.BF16, DType.FP16, DType.FP32)


@pytest.mark.parametrize(
    ("problem", "shapes"),
    [
        ("16x32x64", {"MATRIX": (16, 32), "ROW": (1, 32), "COLUMN": (16, 1), "SCALAR": (1, 1)}),
        (
            "3x16x32x64:bf16:nt:bmm",
            {
                **{"MATRIX": (3, 16, 32), "ROW": (1, 1, 32), "ROWS": (3, 1, 32)},
                **{"COLUMN": (3, 16, 1), "SCALAR": (1, 1, 1)},
            },
        ),
    ],
)
def test_an_epilogues_operand_has_a_size_per_size_of_the_output(problem, shapes):
    assert {name: Problem.parse(problem).shape_of(OperandShape[name]) for name in shapes} == shapes


@st.composite
def nameable(draw: st.DrawFn) -> Problem:
    """A problem that the short text can say: one dtype with the output and accumulator of it, the default epilogue."""
    dtype = draw(st.sampled_from([dtype for dtype in DType if dtype is not DType.INT32]))
    op = draw(st.sampled_from(Op))
    return Problem(
        m=draw(SIZES),
        n=draw(SIZES),
        k=draw(SIZES),
        op=op,
        batch=draw(SIZES) if op is Op.BMM else 1,
        a_dtype=dtype,
        b_dtype=dtype,
        out_dtype=OUTPUTS.get(dtype, dtype),
        acc_dtype=DType.INT32 if dtype is DType.INT8 else DType.FP32,
        a_layout=draw(st.sampled_from(Layout)),
        b_layout=draw(st.sampled_from(Layout)),
        allow_tf32=dtype is DType.FP32 and draw(st.booleans()),
        bias=draw(st.sampled_from([Bias.VECTOR, Bias.MATRIX])) if op is Op.ADDMM else Bias.NONE,
        dynamic_m=draw(st.booleans()),
    )


@given(nameable())
def test_parse_reads_back_the_name(problem: Problem):
    assert Problem.parse(problem.name) == problem


@given(nameable(), st.sampled_from(FLOATS), st.sampled_from(FLOATS), st.sampled_from(["none", "gelu"]))
def test_from_fields_reads_back_to_fields(problem: Problem, out: DType, acc: DType, epilogue: str):
    accumulator = problem.acc_dtype if problem.acc_dtype.is_integer else acc
    fields = problem.to_fields() | {"out_dtype": out.value, "acc_dtype": accumulator.value, "epilogue": epilogue}
    assert Problem.from_fields(fields).to_fields() == fields


@given(nameable())
def test_the_weight_does_not_change_equality(problem: Problem):
    weighted = Problem.from_fields(problem.to_fields() | {"weight": "2.5"})
    assert weighted.weight == 2.5
    assert weighted == problem
    assert hash(weighted) == hash(problem)
    assert "weight" not in problem.to_fields()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("2048x4096x4096", "2048x4096x4096:bf16:nt"),
        ("2048x4096x4096:fp16", "2048x4096x4096:fp16:nt"),
        (" 1x2x3:tf32:tn ", "1x2x3:tf32:tn"),
        ("8x1x2x3:bf16:nn:bmm", "8x1x2x3:bf16:nn:bmm"),
        ("1x1x2x3:bf16:nn:bmm", "1x1x2x3:bf16:nn:bmm"),
        ("1x2x3:bf16:nt:out_dtype=fp32", "1x2x3:bf16:nt:out_dtype=fp32"),
        ("1x2x3:acc_dtype=fp16:epilogue=relu", "1x2x3:bf16:nt:acc_dtype=fp16:epilogue=relu"),
        ("1x2x3:epilogue=ADD(matrix[bf16]).relu", "1x2x3:bf16:nt:epilogue=add(matrix).relu"),
        ("1x2x3:bf16:nt:addmm:epilogue=div(x.neg.exp.add(1)).to(bf16)", "1x2x3:bf16:nt:addmm:epilogue=silu"),
        ("1x2x3:epilogue=to(bf16)", "1x2x3:bf16:nt"),
        ("1x2x3:fp32:nt:addmm", "1x2x3:fp32:nt:addmm"),
        ("1x2x3:fp32:nt:addmm:bias=vector", "1x2x3:fp32:nt:addmm"),
        ("1x2x3:bf16:nt:addmm:dynamic_m=true:bias=matrix", "1x2x3:bf16:nt:addmm:bias=matrix:dynamic_m=true"),
        ("1x2x3:bias=none:dynamic_m=false", "1x2x3:bf16:nt"),
        ("1x2x3:e4m3:nt:out_dtype=bf16:acc_dtype=fp32", "1x2x3:e4m3:nt"),
        ("1x2x3:e5m2:nt:out_dtype=fp16", "1x2x3:e5m2:nt:out_dtype=fp16"),
        ("1x2x3:int8:nt:out_dtype=int32:acc_dtype=int32", "1x2x3:int8:nt"),
        ("1x2x3:int8:nn:out_dtype=bf16", "1x2x3:int8:nn:out_dtype=bf16"),
        ("4x2x3:lda=3:ldb=3", "4x2x3:bf16:nt"),
        ("4x2x3:bf16:tn:ldb=5:lda=8", "4x2x3:bf16:tn:lda=8:ldb=5"),
        ("7x4x2x3:bf16:nt:bmm:lda=8:batch_stride_a=32", "7x4x2x3:bf16:nt:bmm:lda=8"),
        ("7x4x2x3:bf16:nt:bmm:batch_stride_a=12:batch_stride_b=0", "7x4x2x3:bf16:nt:bmm:batch_stride_b=0"),
        ("1x4x2x3:bf16:nt:bmm:batch_stride_b=0", "1x4x2x3:bf16:nt:bmm"),
        ("4x2x3:bf16:nt:addmm:alpha=2.0:beta=1", "4x2x3:bf16:nt:addmm:alpha=2"),
        ("4x2x3:bf16:nt:addmm:beta=-1e-5:lda=8", "4x2x3:bf16:nt:addmm:beta=-1e-05:lda=8"),
        ("7x4x2x3:bf16:nt:baddbmm:bias=matrices", "7x4x2x3:bf16:nt:baddbmm"),
        ("7x4x2x3:bf16:nt:baddbmm:beta=-0.0", "7x4x2x3:bf16:nt:baddbmm:beta=0"),
        ("7x4x2x3:bf16:nt:baddbmm:bias=vector", "7x4x2x3:bf16:nt:baddbmm:bias=vector"),
    ],
)
def test_parse_applies_the_defaults(text: str, name: str):
    assert Problem.parse(text).name == name


UNUSUAL = [
    "7x4x2x3:bf16:nn:bmm:lda=24:batch_stride_a=3:batch_stride_b=0",
    "7x4x2x3:bf16:nt:baddbmm:bias=vectors:alpha=0.1:beta=3",
    "4x2x3:bf16:tn:addmm:bias=matrix:dynamic_m=true:lda=9",
]


@pytest.mark.parametrize("name", UNUSUAL)
def test_views_and_scalars_are_fields_that_a_usual_problem_has_not(name: str):
    problem = Problem.parse(name)
    assert problem.name == name
    assert Problem.from_fields(problem.to_fields()) == problem
    assert {"alpha", "beta", "lda", "ldb", "batch_stride_a", "batch_stride_b"}.isdisjoint(Problem(1, 2, 3).to_fields())
    assert not problem.family.is_strided
    assert not Problem.parse("4x2x3:bf16:nt:addmm:alpha=2").is_strided


def test_strides_and_bytes_are_those_of_the_views():
    heads = Problem.parse("7x4x2x3:bf16:nt:bmm:lda=24:batch_stride_a=3:batch_stride_b=0")
    assert (heads.strides_of("a", 4), heads.strides_of("b", 4)) == ((3, 24, 1), (0, 1, 3))
    assert (heads.reach("a"), heads.reach("b")) == (6 * 3 + 3 * 24 + 2 + 1, 6)
    assert heads.min_bytes == 2 * (7 * 4 * 3 + 2 * 3 + 7 * 4 * 2)
    assert Problem.parse("7x4x2x3:bf16:nt:baddbmm:bias=vectors").bias_shape == (7, 1, 2)


def test_a_view_keeps_its_strides_at_another_m():
    problem = Problem.parse("4x2x3:bf16:nt:lda=8")
    assert problem.resized(16).name == "16x2x3:bf16:nt:lda=8"
    assert problem.series != Problem.parse("4x2x3").series


def test_tf32_is_fp32_with_tf32_products_allowed():
    tf32, fp32 = Problem.parse("16x16x16:tf32"), Problem.parse("16x16x16:fp32")
    assert (tf32.a_dtype, tf32.b_dtype, tf32.out_dtype) == (DType.FP32,) * 3
    assert (tf32.allow_tf32, fp32.allow_tf32) == (True, False)
    assert tf32 != fp32


def test_a_field_overrides_the_shorthand_that_covers_it():
    problem = Problem.from_fields({"m": "1", "n": "2", "k": "3", "dtype": "bf16", "out_dtype": "fp32", "layout": "tn"})
    assert (problem.a_dtype, problem.b_dtype, problem.out_dtype) == (DType.BF16, DType.BF16, DType.FP32)
    assert (problem.a_layout, problem.b_layout) == (Layout.T, Layout.N)


@pytest.mark.parametrize("record", [{"op": "addmm"}, {"op": "addmm", "bias": ""}, {"op": "addmm", "bias": "vector"}])
def test_an_addmm_has_a_vector_bias_by_default(record):
    problem = Problem.from_fields({"m": "1", "n": "2", "k": "3", **record})
    assert problem == Problem(1, 2, 3, op=Op.ADDMM)
    assert problem.bias is Bias.VECTOR
    assert problem != Problem(1, 2, 3, op=Op.ADDMM, bias=Bias.MATRIX)


def test_a_dynamic_m_is_another_problem():
    assert Problem(1, 2, 3, dynamic_m=True) != Problem(1, 2, 3)


def test_an_empty_field_takes_its_default():
    problem = Problem.from_fields({"m": "1", "n": "2", "k": "3", "batch": "", "epilogue": ""})
    assert problem == Problem(1, 2, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0x4x4", "m=0 is not an integer from 1 to 2147483647"),
        ("4x2147483648x4", "n=2147483648 is not an integer from 1 to 2147483647"),
        ("4x4x4:lda=3", "lda=3 is not an integer from 4, the dense one, to 1099511627776"),
        ("4x4x4:bf16:nt:epilogue=add(rows)", "a vector of rows is for each product of a batch, not for mm"),
        ("2x4x4x4:bf16:nt:bmm:epilogue=mul(gate[4])", "a vector of gate is for rows of one product, not for bmm"),
        ("4x4x4:batch_stride_a=16", "batch_stride_a=16 is not a stride of mm, which has no batch"),
        ("2x4x4x4:bf16:nt:bmm:batch_stride_a=-1", "batch_stride_a=-1 is not an integer from 0 on"),
        ("4x4x4:alpha=2", "alpha=2.0 needs op addmm or baddbmm, not mm"),
        ("4x4x4:bf16:nt:addmm:alpha=0", "alpha=0.0 is not a finite number other than 0"),
        ("4x4x4:bf16:nt:addmm:beta=nan", "beta=nan is not a finite number"),
        ("4x4x4:bf16:nt:addmm:beta=x", "beta='x' is not a number"),
        ("4x4x4:bf16:nt:addmm:bias=matrices", "bias=matrices needs op baddbmm, not addmm"),
        ("0x4x4x4:bf16:nt:bmm", "batch=0 is not an integer from 1 to 2147483647"),
        ("2x4x4x4", "batch=2 needs op bmm, not mm: write 2xMxNxK:DTYPE:LAYOUT:bmm"),
        ("4x4x4:bf16:nt:bias=matrix", "bias=matrix needs op addmm, not mm: write MxNxK:DTYPE:LAYOUT:addmm"),
        ("4x4x4:bf16:nt:bmm:bias=vector", "bias=vector needs op addmm, not bmm: write MxNxK:DTYPE:LAYOUT:addmm"),
        ("4x4x4:bf16:nt:addmm:bias=row", "bias='row' is not one of none, vector, matrix"),
        ("4x4x4:bf16:nt:dynamic_m=yes", "dynamic_m='yes' is not true or false"),
        ("4x4x4:int4", "dtype 'int4' is not one of bf16, fp16, fp32"),
        ("4x4x4:int8:nt:acc_dtype=fp32", "int8 by int8 accumulated in fp32 to int32 mixes integers and floats"),
        ("4x4x4:bf16:nt:out_dtype=int32", "bf16 by bf16 accumulated in fp32 to int32 mixes integers and floats"),
        ("4x4x4:int32", "dtype 'int32' is not one of bf16, fp16, fp32, tf32, e4m3, e5m2, int8"),
        ("4x4x4:int8:nt:out_dtype=int8", "out_dtype=int8 has 8 bits, which hold no unscaled sum"),
        ("4x4x4:e4m3:nt:acc_dtype=e4m3", "acc_dtype=e4m3 has 8 bits, which hold no unscaled sum"),
        ("4x4x4:bf16:nx", "layout 'nx' is not one of nn, nt, tn, tt"),
        ("4x4x4:bf16:nt:conv", "op='conv' is not one of mm, addmm, bmm"),
        ("4x4x4:bf16:nt:epilogue=gelux", "'gelux' is no operation; did you mean gelu? known: abs, add"),
        ("4x4x4:int8:nt:epilogue=relu", "epilogue=relu behind an output of int32: it needs a float"),
        ("4x4", "malformed problem '4x4': expected [BATCHx]MxNxK[:DTYPE[:LAYOUT[:OP]]]"),
        ("-4x4x4", "malformed problem '-4x4x4': expected"),
        ("4x4x4:bf16:nt:m=8", "'4x4x4:bf16:nt:m=8' gives m twice: leave one out"),
        ("2x4x4x4:bf16:nt:bmm:batch=4", "gives batch twice"),
        ("4x4x4:bf16:nt:dtype=fp16", "gives dtype twice"),
        ("4x4x4:bf16:nt:lda=8:lda=16", "gives lda twice"),
        ("4x4x4:bf16:nt:epilogue=mul(1e400)", "1e400 is above the largest number"),
        ("4x4x4:bf16:nt:mm:more", "malformed problem '4x4x4:bf16:nt:mm:more': expected"),
        ("", "malformed problem '': expected"),
    ],
)
def test_a_bad_text_is_refused_with_the_value_and_the_bound(text: str, message: str):
    with pytest.raises(ProblemError) as caught:
        Problem.parse(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"m": "4", "n": "4"}, "problem field 'k' is missing; m, n and k are needed"),
        ({"m": "4", "n": "4", "k": ""}, "problem field 'k' is missing; m, n and k are needed"),
        ({"m": "4.5", "n": "4", "k": "4"}, "m='4.5' is not an integer from 1 to 2147483647"),
        ({"m": "4", "n": "4", "k": "4", "weight": "0"}, "weight=0.0 is not a number above 0"),
        ({"m": "4", "n": "4", "k": "4", "weight": "nan"}, "weight=nan is not a number above 0"),
        ({"m": "4", "n": "4", "k": "4", "weight": "often"}, "weight='often' is not a number above 0"),
        ({"m": "4", "n": "4", "k": "4", "allow_tf32": "1"}, "allow_tf32='1' is not true or false"),
        ({"m": "4", "n": "4", "k": "4", "allow_tf32": "true"}, "tf32 applies to fp32 operands, not to bf16"),
        ({"m": "4", "n": "4", "k": "4", "mm": "4"}, "unknown problem field 'mm'; did you mean m? known: a_dtype, "),
    ],
)
def test_a_bad_field_is_refused_with_the_value_and_the_bound(fields: dict[str, str], message: str):
    with pytest.raises(ProblemError) as caught:
        Problem.from_fields(fields)
    assert str(caught.value).startswith(message)


def test_flops_count_a_multiply_and_an_add():
    assert Problem.parse("2x3x5").flops == 2 * 2 * 3 * 5 == 60
    assert Problem.parse("7x2x3x5:bf16:nt:bmm").flops == 7 * 60
    assert Problem.parse("2x3x5:bf16:nt:addmm").flops == 60 + 2 * 3
    assert Problem.parse("2x3x5:bf16:nt:addmm:epilogue=relu.mul(matrix)").flops == 60 + 3 * 2 * 3


def test_an_epilogue_names_the_arguments_of_a_kernel_and_counts_in_the_sizes():
    problem = Problem.parse("2x3x5:bf16:nt:addmm:epilogue=gelu.mul(matrix).add(row2).add(row)+x")
    assert problem.argument_names == ("a", "b", "out", "out2", "bias", "matrix", "row", "row2")
    assert problem.sizes["steps"] == 1 + 5 + 3
    assert Problem.parse("2x3x5:bf16:nt:addmm").argument_names == ("a", "b", "out", "bias")
    assert Problem.parse("2x3x5").sizes["steps"] == 1


def test_min_bytes_count_each_operand_and_the_output_once():
    # A 2×5, B 5×3, out 2×3: 10 + 15 + 6 elements.
    assert Problem.parse("2x3x5:bf16").min_bytes == 31 * 2
    assert Problem.parse("2x3x5:fp32").min_bytes == 31 * 4
    assert Problem.parse("7x2x3x5:fp16:nt:bmm").min_bytes == 7 * 31 * 2
    mixed = Problem.from_fields({"m": "2", "n": "3", "k": "5", "dtype": "bf16", "out_dtype": "fp32"})
    assert mixed.min_bytes == 25 * 2 + 6 * 4
    assert Problem.parse("2x3x5:int8").min_bytes == 25 + 6 * 4
    assert Problem.parse("2x3x5:bf16:nt:addmm").min_bytes == (31 + 3) * 2
    assert Problem.parse("2x3x5:epilogue=relu+x").min_bytes == (31 + 6) * 2
    assert Problem.parse("2x3x5:epilogue=add(matrix[fp32]).mul(row).to(fp32)").min_bytes == 25 * 2 + 3 * 2 + 2 * 6 * 4
    assert Problem.parse("7x2x3x5:fp16:nt:bmm:epilogue=mul(column).add(row)").min_bytes == (7 * (31 + 2) + 3) * 2
    assert Problem.parse("2x3x5:bf16:nt:addmm:bias=matrix").min_bytes == (31 + 6) * 2


@pytest.mark.parametrize(
    ("dtype", "size", "torch_name"),
    [
        ("bf16", 2, "bfloat16"),
        ("fp16", 2, "float16"),
        ("fp32", 4, "float32"),
        ("e4m3", 1, "float8_e4m3fn"),
        ("e5m2", 1, "float8_e5m2"),
        ("int8", 1, "int8"),
        ("int32", 4, "int32"),
    ],
)
def test_a_dtype_knows_its_size_and_its_name_in_torch(dtype: str, size: int, torch_name: str):
    assert (DType(dtype).itemsize, DType(dtype).torch_name) == (size, torch_name)
