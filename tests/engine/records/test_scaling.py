import pytest

from gemmtune.engine.records.epilogue.text import parse_epilogue
from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.scaling import scaling_of

ROWS = "mul(column[fp32]).mul(row[fp32])"
SCALARS = "mul(scalar[fp32]).mul(scalar2[fp32])"


@pytest.mark.parametrize(
    ("chain", "operands", "rest"),
    [
        (ROWS, ["column", "row"], "none"),
        (SCALARS, ["scalar", "scalar2"], "none"),
        (f"{ROWS}.add(row2)", ["column", "row", "row2"], "none"),
        (f"{ROWS}.add(row2[fp32])", ["column", "row"], "add(row2[fp32])"),  # torch's bias has the output's type
        (f"{SCALARS}.add(row).silu.mul(matrix)", ["scalar", "scalar2", "row"], "silu.mul(matrix)"),
        (f"{ROWS}.add(row2).add(row3)", ["column", "row", "row2"], "add(row3)"),
        (f"{ROWS}.relu+{ROWS}", ["column", "row"], "x+relu"),
        (f"{ROWS}.add(row2)+{ROWS}", ["column", "row"], "x+add(row2)"),
        (f"matrix[bool].where(0,x.{ROWS})", ["column", "row"], "matrix[bool].where(0,x)"),
        (f"{ROWS}.to(fp32)", ["column", "row"], "to(fp32)"),
    ],
)
def test_a_chain_of_scales_is_split_from_what_follows(chain, operands, rest):
    found = scaling_of(parse_epilogue(chain), "bf16")
    assert found is not None
    assert [each.name for each in found.operands] == operands
    assert found.is_row_wise is (operands[0] == "column")
    assert str(found.rest) == rest


@pytest.mark.parametrize(
    "chain",
    [
        "none",
        "mul(scalar[fp32])",
        "mul(column[fp32])",
        "mul(row[fp32])",
        "mul(row[fp32]).mul(column[fp32])",
        "mul(column[fp32]).mul(scalar[fp32])",
        "mul(scalar[fp32]).mul(scalar[fp32])",
        "mul(column).mul(row)",
        "mul(matrix[fp32]).mul(matrix2[fp32])",
        "add(column[fp32]).mul(row[fp32])",
        f"{ROWS}+x",
        f"{ROWS}.mul(x.relu)",
        f"{ROWS}.relu.mul(column[fp32])",
    ],
)
def test_a_missing_scale_and_one_of_another_layout_or_type_make_no_scales(chain):
    assert scaling_of(parse_epilogue(chain), "bf16") is None


def test_an_output_in_the_type_of_the_scales_has_scales_and_no_bias():
    problem = Problem.parse(f"64x32x32:e4m3:nt:out_dtype=fp32:epilogue={ROWS}.add(row2)")
    assert str(problem.epilogue) == "mul(column).mul(row).add(row2)"
    assert problem.scaling is not None
    assert (problem.scaling.bias, str(problem.unscaled_epilogue)) == (None, "add(row2)")


def test_exact_sums_are_part_of_a_name_and_fast_ones_of_none():
    exact = Problem.parse(f"64x32x32:e4m3:nt:epilogue={ROWS}:accumulation=exact")
    fast = Problem.parse(f"64x32x32:e4m3:nt:epilogue={ROWS}:accumulation=fast")
    assert exact.name == f"64x32x32:e4m3:nt:epilogue={ROWS}:accumulation=exact"
    assert fast.name == f"64x32x32:e4m3:nt:epilogue={ROWS}"
    assert "accumulation" not in fast.to_fields()
    for each in (exact, fast):
        assert Problem.parse(each.name) == each == Problem.from_fields(each.to_fields())
    assert exact != fast
    assert Problem.parse("64x32x32:int8:nt").scaling is None


@pytest.mark.parametrize("types", ["bf16:nt", "int8:nt", "e4m3:nt:b_dtype=bf16"])
def test_exact_sums_are_for_8_bit_floats(types):
    with pytest.raises(ProblemError, match="accumulation=exact is for an mm of 8-bit floats"):
        Problem.parse(f"64x32x32:{types}:accumulation=exact")


@pytest.mark.parametrize("behind", ["", ".add(row2)", ".silu.mul(matrix)", ".relu+{}"])
def test_scales_in_the_other_order_are_one_problem(behind):
    other = "mul(row[fp32]).mul(column[fp32])"
    for out in ("bf16", "fp32"):
        found, usual = (
            Problem.parse(f"64x32x32:e4m3:nt:out_dtype={out}:epilogue={each}{behind.format(each)}")
            for each in (other, ROWS)
        )
        assert found == usual
        assert found.scaling is not None


@pytest.mark.parametrize(
    "problem",
    [
        "e4m3:nt:epilogue=mul(row[fp32]).mul(row2[fp32])",
        "e4m3:nt:epilogue=mul(row).mul(column[fp32])",
        "e4m3:nt:epilogue=mul(row[fp32]).add(column[fp32])",
        "e4m3:nt:epilogue=mul(row[fp32])+mul(row[fp32]).mul(column[fp32])",
        "int8:nt:out_dtype=bf16:epilogue=mul(row[fp32]).mul(column[fp32])",
    ],
)
def test_other_chains_keep_their_order(problem):
    parsed = Problem.parse(f"64x32x32:{problem}")
    assert str(parsed.epilogue) == str(parse_epilogue(problem.partition("epilogue=")[2]))
