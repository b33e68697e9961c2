"""Speeds and roofs by value: rates, the roof that bounds a row, and limits that hold every point and line."""

from dataclasses import replace

import pytest

from gemmtune.engine.consumers.serving.contract.block_linear import VllmBlockFp8
from gemmtune.engine.consumers.serving.contract.moe_layer import VllmMoe
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.tables.roofline import Roof, Speed, roofline, speed, speed_columns, speeds
from gemmtune.spaces.triton.kind import KernelCase

H200, B200 = catalogue.device("H200"), catalogue.device("B200")
BARE = KernelCase("Softmax", "0" * 12, (("rows", 16),))
OWN = replace(BARE, operations=1)
# Operations, bytes, and the time of each at 4,800 GB/s and 989.5 TFLOP/s.
DECODE = Problem.parse("16x4096x4096:bf16:nt")  # 536,870,912 flops, 33,816,576 bytes: 7.045 µs
PREFILL = Problem.parse("8192x8192x8192:bf16:nt")  # 1.0995e12 flops, 402,653,184 bytes: 1,111.2 µs


def table(*work, device=H200, objective="latency", time_ns=10_000.0):
    choice = Choice("triton_mm", Config({}), time_ns, time_ns, time_ns, 1, Evidence.MEASURED, "", "graph")
    return Table(device, tuple(Row(each, (choice,), None, 0.0, ()) for each in work), objective)


def test_a_speed_is_operations_and_bytes_over_the_time():
    found = speed(H200, DECODE, 10_000.0)
    assert found.tflop_s == pytest.approx(536_870_912 / 10e-6 * 1e-12, rel=1e-12)
    assert found.gb_s == pytest.approx(33_816_576 / 10e-6 * 1e-9, rel=1e-12)
    assert found.intensity == pytest.approx(536_870_912 / 33_816_576, rel=1e-12)


def test_the_lower_roof_bounds_a_row():
    decode, prefill = speed(H200, DECODE, 10_000.0), speed(H200, PREFILL, 1.5e6)
    assert (decode.bound, prefill.bound) == ("memory", "compute")
    assert decode.roof_tflop_s == pytest.approx(15.8760 * 4.8, rel=1e-4)
    assert decode.fraction_of_peak == pytest.approx(decode.gb_s / 4_800, rel=1e-12)
    assert prefill.roof_tflop_s == 989.5
    assert prefill.fraction_of_peak == pytest.approx(732.98 / 989.5, rel=1e-4)


@pytest.mark.parametrize(
    ("work", "compute_type", "h200", "rtx_4090"),
    [
        (Problem.parse("64x64x64:bf16"), "bf16", 989.5, 165.2),
        (Problem.parse("64x64x64:fp16"), "fp16", 989.5, 165.2),
        (Problem.parse("64x64x64:fp16:nt:acc_dtype=fp16"), "fp16 in fp16", 989.5, 330.3),
        (Problem.parse("64x64x64:fp32"), "fp32", 67.0, 82.6),
        (Problem.parse("64x64x64:tf32"), "tf32", 494.5, 82.6),
        (Problem.parse("64x64x64:e4m3"), "fp8", 1979.0, 330.3),
        (Problem.parse("64x64x64:e5m2:nt:b_dtype=e4m3"), "fp8", 1979.0, 330.3),
        (Problem.parse("64x64x64:e5m2:nt:acc_dtype=fp16"), "fp8 in fp16", 1979.0, 660.6),
        (Problem.parse("64x64x64:e4m3:nt:b_dtype=bf16"), "bf16", 989.5, 165.2),
        (Problem.parse("64x64x64:int8"), "int8", 1979.0, 660.6),
        (VllmMoe.parse("vllm_moe:m1:e8:k2:h128:n128"), "bf16", 989.5, 165.2),
        (VllmMoe.parse("vllm_moe:m1:e8:k2:h128:n128:fp8_block"), "fp8", 1979.0, 330.3),
        (VllmBlockFp8.parse("vllm_block_fp8:m16:n4096:k7168"), "fp8", 1979.0, 330.3),
        (OWN, "", None, None),
    ],
)
def test_operands_and_sums_decide_the_peak(work, compute_type, h200, rtx_4090):
    assert work.compute_type == compute_type
    assert H200.peak_tflops(compute_type) == h200
    assert catalogue.device("RTX-4090").peak_tflops(compute_type) == rtx_4090


def test_rows_of_several_types_have_a_roof_each_and_equal_peaks_share_one():
    names = ["64x64x64:fp16", "64x64x64:bf16", "64x64x64:e4m3", "64x64x64:tf32"]
    found = roofline(H200, [each for each in speeds(table(*map(Problem.parse, names))) if each])
    assert [(roof.name, roof.limit) for roof in found.roofs] == [
        ("memory", 4_800),
        ("tf32", 494.5),
        ("bf16, fp16", 989.5),
        ("fp8", 1979.0),
    ]
    assert found.unknown == ()


def test_a_peak_that_is_not_known_is_named_and_leaves_the_memory_alone():
    found = roofline(H200, [each for each in speeds(table(OWN, DECODE)) if each])
    assert found.unknown == ("",)
    assert speed(H200, OWN, 10.0).fraction_of_peak is None
    bare = catalogue.device("RTX-4060")
    alone = roofline(bare, [speed(bare, DECODE, 10_000.0)])
    assert (alone.unknown, [roof.name for roof in alone.roofs]) == (("bf16",), ["memory"])
    assert alone.roofs[0].ends[1][0] == alone.x[1]  # the line crosses the picture


def test_the_roofs_meet_at_the_ridge():
    memory, compute = roofline(H200, [speed(H200, DECODE, 10_000.0)]).roofs
    ridge = 989.5 / 4.8
    assert memory.ends[1] == pytest.approx((ridge, 989.5), rel=1e-12)
    assert compute == Roof("bf16", 989.5, ((ridge, 989.5), (pytest.approx(ridge * 1.6), 989.5)))


@pytest.mark.parametrize(
    ("device", "work", "time_ns"),
    [
        (B200, DECODE, 18_400.0),  # 24 % of the bandwidth
        (H200, PREFILL, 1.5e6),  # right of the ridge
        (H200, PREFILL, 1.5e9),  # far below its roof
        (H200, DECODE, 1_000.0),  # operands in the L2 cache: above the memory's roof
        (H200, Problem.parse("1x1x1:fp32"), 1_000.0),
        (H200, OWN, 1_000.0),
    ],
)
def test_the_picture_holds_every_point_and_every_roof(device, work, time_ns):
    each = speed(device, work, time_ns)
    found = roofline(device, [each])
    for x, y in [(each.intensity, each.tflop_s), *(end for roof in found.roofs for end in roof.ends)]:
        assert found.x[0] <= x <= found.x[1] * (1 + 1e-12)
        assert found.y[0] < y < found.y[1]


def test_columns_leave_out_what_is_not_known():
    columns = speed_columns(table(DECODE, BARE))
    assert columns == {"TFLOP/s": ["53.7", "-"], "GB/s": ["3382", "0"], "% of peak": ["70%", "-"]}
    assert speed(H200, BARE, 10.0) == Speed("", 0.0, None, 0.1, "", None)
    assert speed_columns(table(DECODE, objective="energy")) == {}
    assert speed_columns(table(DECODE, objective="no_such_plug_in")) == {}
    assert speed(H200, replace(OWN, least_bytes=0), 10.0) is None
