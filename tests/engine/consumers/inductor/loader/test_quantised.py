"""Products of 8-bit operands with a table and without, lowered by the installed torch; see quantised_probe.py."""

from __future__ import annotations

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row
from gemmtune.engine.toolchain.releases import installed_torch

pytestmark = [pytest.mark.slow(10, together="probes"), pytest.mark.timeout(300)]

TILES = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 64, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}


def choice(config):
    return Choice(
        "triton_mm", Config(config), 100.0, 99.0, 101.0, 32, Evidence.MEASURED, "torch 2.13.0", "events-cold-l2"
    )


def row(problem, config=TILES):
    return Row(Problem.parse(problem), (choice(config),), None, 0.0, ())


ROW_WISE, PER_TENSOR = "mul(column[fp32]).mul(row[fp32])", "mul(scalar[fp32]).mul(scalar2[fp32])"
ROWS = (
    row(f"64x96x256:e4m3:nt:epilogue={ROW_WISE}"),
    row(f"1x96x256:e4m3:nt:epilogue={ROW_WISE}", config={**TILES, "BLOCK_M": 16, "num_warps": 1}),
    row(f"64x96x256:e4m3:nt:epilogue={ROW_WISE}.add(row2)"),
    row(f"64x96x256:e4m3:nt:epilogue={ROW_WISE}.silu"),
    row(f"64x96x256:e4m3:nt:epilogue={PER_TENSOR}"),
    row(f"64x256x96:e5m2:nt:b_dtype=e4m3:epilogue={PER_TENSOR}:accumulation=exact"),
    row(f"64x96x256:e4m3:nt:out_dtype=fp16:epilogue={ROW_WISE}:accumulation=exact"),
    row(f"64x96x256:e4m3:nt:out_dtype=fp32:epilogue={ROW_WISE}"),
    row(f"64x96x256:e4m3:nt:out_dtype=fp32:epilogue={PER_TENSOR}.relu.to(bf16)"),
    row("64x96x256:int8:nt"),
    row(f"64x96x256:int8:nt:out_dtype=bf16:epilogue={ROW_WISE}"),
)
RANGES = (
    RangeRow(
        Problem.parse(f"256x96x256:e4m3:nt:epilogue={PER_TENSOR}:dynamic_m=true"),
        *(2, 256, choice(TILES), ((256, 0.0),)),
    ),
)
TAKEN = {
    *("rows", "one token", "tensors", "tensors of one element", "one scale for both", "bias", "silu", "relu"),
    "tensors of three dimensions",
    *("open rows", "fp16 rows", "int8", "int8 with scales", "int8 twice"),
    *("int8 by thirds", "tensors of one vector each", "fp32 rows", "fp32 tensors"),
}
BLOCKS = "block-wise scales of 128x2 and 2x1, for blocks of 1x128 and 128x128"


@pytest.fixture(scope="module")
def report(probed, exported):
    return probed("quantised_probe.py", exported(ROWS, RANGES), "stock", "table")


def outcomes(report, name):
    return [use["outcome"] for use in report["table"][name]["uses"]]


def test_whatever_compiles_without_a_table_compiles_with_it_and_nothing_is_benchmarked(report):
    for name, stock in report["stock"].items():
        table = report["table"][name]
        assert table["failure"] == stock["failure"], name
        assert table["benchmarks"] == 0
        assert table["outputs"] == stock["outputs"], name
        assert not [said for said in table["said"] if "no row" not in said], name


def test_rows_are_taken_alone(report):
    second = {"second version", "second version of tensors"} - {*report["lacks"]}
    if installed_torch().startswith(("2.11.", "2.12.")):
        second = set()  # they lower no such product
    taken = {name for name in report["table"] if "row" in outcomes(report, name)}
    assert taken == (TAKEN & report["table"].keys()) | second | {"training"}
    for name in taken - {"training"}:
        assert [kinds for _, kinds in report["table"][name]["selections"]] == [["row"]], name


def test_an_exact_product_gets_no_fast_row_and_other_products_none_at_all(report):
    for name in ("exact tensors", "exact rows", "fp16"):
        assert outcomes(report, name) == ["miss"]
        assert [kinds for _, kinds in report["table"][name]["selections"]] == [["_scaled_mm"]]
    (use,) = report["table"]["exact rows"]["uses"]
    assert use["problem"] == f"64x96x256:e4m3:nt:epilogue={ROW_WISE}:accumulation=exact"


def test_a_fast_product_without_a_row_gets_the_exact_one(report):
    (use,) = report["table"]["fp16 rows"]["uses"]
    assert use["problem"] == f"64x96x256:e4m3:nt:out_dtype=fp16:epilogue={ROW_WISE}:accumulation=exact"


def test_gradients_are_summed_exactly_by_a_row_that_is_exact(report):
    forward, backward = report["table"]["training"]["uses"]
    assert forward["problem"] == f"64x96x256:e4m3:nt:epilogue={PER_TENSOR}"
    assert backward["problem"] == f"64x256x96:e5m2:nt:b_dtype=e4m3:epilogue={PER_TENSOR}:accumulation=exact"
    assert (forward["outcome"], backward["outcome"]) == ("row", "row")


def test_scales_of_a_product_in_fp32_have_the_type_of_its_output(report):
    chains = {"fp32 rows": "mul(column).mul(row)", "fp32 tensors": "mul(scalar).mul(scalar2).relu.to(bf16)"}
    for name, chain in chains.items():
        (use,) = report["table"][name]["uses"]
        assert use["problem"] == f"64x96x256:e4m3:nt:out_dtype=fp32:epilogue={chain}"
        assert (use["outcome"], "epilogue apart" in use["detail"]) == ("row", False)


def test_a_chain_is_fused_by_its_own_row_and_runs_apart_behind_another(report):
    (silu,), (relu,) = (report["table"][name]["uses"] for name in ("silu", "relu"))
    assert "epilogue apart" not in silu["detail"]
    assert relu["detail"].endswith("epilogue apart")
    assert relu["problem"] == f"64x96x256:e4m3:nt:epilogue={ROW_WISE}.relu"


def test_scales_of_blocks_and_operations_on_whole_numbers_are_named_with_their_size(report):
    if not report["stock"]["blocks"]["failure"]:
        (use,) = report["table"]["blocks"]["uses"]
        assert (use["outcome"], use["problem"]) == ("no problem", "scaled_mm")
        assert use["detail"] == f"{BLOCKS}, in a product of 128x128x256"
    (use,) = report["table"]["int8 twice"]["uses"]
    assert use["outcome"] == "row"
    assert "mul of whole numbers" in use["detail"]


def test_whole_numbers_whose_chain_has_no_row_run_that_of_their_sums(report):
    (use,) = report["table"]["int8 by thirds"]["uses"]
    assert use["problem"] == "64x96x256:int8:nt:out_dtype=fp32:epilogue=div(3)"
    assert use["detail"].startswith("64x96x256:int8:nt triton::mm")
    assert use["detail"].endswith("epilogue apart")


def test_a_bias_whose_elements_lie_apart_is_no_problem_and_says_so(report):
    (use,) = report["table"]["bias apart"]["uses"]
    assert (use["outcome"], use["problem"]) == ("no problem", "scaled_mm")
    assert use["detail"] == "a bias of bfloat16 with sizes 96 and stride 2, in a product of 64x96x256"


def test_an_output_of_8_bits_is_no_problem_and_says_so(report):
    (use,) = report["table"]["fp8 output"]["uses"]
    assert (use["outcome"], use["problem"]) == ("no problem", "scaled_mm")
    assert "with an output of float8_e4m3fn" in use["detail"]
