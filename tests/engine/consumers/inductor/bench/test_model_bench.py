"""Arithmetic of a model's bench: ratios are of rounds, and rows gain what the table measured."""

from __future__ import annotations

import pytest

from gemmtune.engine.consumers.inductor.bench.model_bench import ArmTimes, ModelBench, ProductGain, paired_ratio
from gemmtune.engine.consumers.inductor.report.bench_file import read_benches, write_bench
from gemmtune.engine.consumers.inductor.report.benches import bench_report
from gemmtune.engine.consumers.inductor.report.model_section import models
from gemmtune.engine.records.errors import UsageError


def bench(*arms, products=()):
    return ModelBench("m:f", ("bf16[2,2]",), False, "NVIDIA H200", "2.13.0", True, arms, products)


SLOW = tuple(1e6 * (2 + number / 10) for number in range(10))
FAST = tuple(1e6 * (1 + number / 20) for number in range(10))


def test_a_ratio_pairs_the_rounds_so_that_what_slows_both_does_not_widen_it():
    ratio = paired_ratio(SLOW, FAST)
    assert (ratio.factor, ratio.low, ratio.high) == pytest.approx((2, 2, 2))
    with pytest.raises(ValueError, match="shorter"):
        paired_ratio(SLOW, FAST[:-1])


def test_an_arm_is_compared_with_torch_compile_and_the_fastest_other_is_named():
    found = bench(ArmTimes("eager", SLOW), ArmTimes("compile", SLOW), ArmTimes("table", FAST))
    assert found.ratio("table").factor == pytest.approx(2)
    assert found.ratio("table", "eager").factor == pytest.approx(2)
    assert found.fastest in ("eager", "compile")


MIDDLE = tuple(1e6 * (1.5 + number * 3 / 40) for number in range(10))
NOISY = tuple(time * (1.1 if number % 2 else 0.9) for number, time in enumerate(MIDDLE))


@pytest.mark.parametrize(
    ("times", "line"),
    [
        ({"compile": SLOW, "table": FAST}, "table is the fastest: 2.000 times as fast as compile\n"),
        ({"compile": FAST, "table": SLOW}, "compile is the fastest: 2.000 times as fast as table\n"),
        ({"compile": NOISY, "table": MIDDLE}, "table and compile are the fastest, and equal within the noise\n"),
        (
            {"compile": SLOW, "max-autotune": FAST, "table": MIDDLE},
            "max-autotune is the fastest: 1.500 times as fast as table; it tunes small kernels, too, as "
            'options=gemmtune_inductor.options() | {"coordinate_descent_tuning": True} does\n',
        ),
    ],
)
def test_a_report_says_which_arm_is_the_fastest(times, line):
    found = bench(*(ArmTimes(name, samples) for name, samples in times.items()))
    assert line in bench_report(found).to_text() + "\n"


def test_without_an_arm_of_either_kind_no_arm_is_called_the_fastest():
    for name in ("compile", "table"):
        assert "fastest" not in bench_report(bench(ArmTimes(name, FAST))).to_text()


def test_an_arm_that_failed_has_a_reason_and_no_ratio():
    found = bench(ArmTimes("compile", SLOW), ArmTimes("table", failure="RuntimeError: out of memory"))
    assert found.ratio("table") is None
    assert found.arm("table") is None
    text = bench_report(found).to_text()
    assert "table failed: RuntimeError: out of memory" in text


def test_a_product_gains_its_rows_lead_as_often_as_it_was_compiled():
    row = ProductGain("16x64x64:bf16:nt", 4, "row", "triton::mm", 3000.0, 2500.0)
    aten = ProductGain("32x64x64:bf16:nt", 4, "aten row", "aten::mm", 3000.0, 3000.0)
    miss = ProductGain("8x64x64:bf16:nt", 2, "miss", "ATen runs")
    assert [gain.saved_ns for gain in (row, aten, miss)] == [2000.0, 0.0, 0.0]
    report = bench_report(bench(ArmTimes("compile", SLOW), ArmTimes("table", FAST), products=(row, aten, miss)))
    assert "saves 2.0 µs per call" in report.to_text()
    assert "gemmtune tune --problem 8x64x64:bf16:nt" in report.to_text()
    record = report.to_json()
    assert record["products"][0]["saved_ns"] == 2000.0
    assert record["arms"][1]["over_compile"]["factor"] == pytest.approx(2)


def test_a_report_says_how_many_kernels_run_as_in_an_earlier_arm():
    report = bench_report(bench(ArmTimes("compile", SLOW), ArmTimes("table", FAST, shared_kernels=12)))
    assert "an earlier arm chose: table 12" in report.to_text()
    assert report.to_json()["arms"][1]["shared_kernels"] == 12
    assert "an earlier arm" not in bench_report(bench(ArmTimes("compile", SLOW))).to_text()


def test_a_bench_is_read_back_as_it_was_and_stands_in_the_report(tmp_path):
    gain = ProductGain("16x64x64:bf16:nt", 4, "row", "triton::mm", 3000.0, 2500.0)
    found = bench(ArmTimes("compile", SLOW), ArmTimes("table", failure="RuntimeError: no"), products=(gain,))
    write_bench(found, tmp_path / "bench.json")
    assert read_benches(tmp_path) == (found,)
    [section] = models([found])
    assert [row[1] for row in section.sheet.rows] == ["compile", "table"]
    assert section.sheet.rows[0][2] == "2.450"
    assert section.sheet.rows[1][-1] == "RuntimeError: no"


def test_a_file_that_is_no_bench_is_refused(tmp_path):
    (tmp_path / "bench-x.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(UsageError, match=r"bench-x.json is no result of gemmtune bench"):
        read_benches(tmp_path)
