"""Reports of a model: lists are cut at 20 products, failed arms are named, captures keep their numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.consumers.inductor.bench.model_bench import ArmTimes, ModelBench, ProductGain
from gemmtune.engine.consumers.inductor.report.benches import bench_report

TIMED = ArmTimes("compile", (1e6,) * 9)


def bench(arms=(TIMED,), products=(), in_graphs=True):
    return ModelBench("m:f", (), False, "NVIDIA H200", "2.13.0", in_graphs, tuple(arms), tuple(products))


def gains(number):
    return [ProductGain(f"{m}x8x8:bf16:nt", 2, "row", "k", 3_000.0, 2_000.0) for m in range(1, number + 1)]


@pytest.mark.parametrize(("number", "shown", "more"), [(20, 20, ""), (21, 20, "1 further products are in the JSON")])
def test_twenty_products_are_shown_and_all_are_summed(number, shown, more):
    report = bench_report(bench(products=gains(number)))
    text = report.to_text()
    assert sum("x8x8:bf16:nt" in line for line in text.splitlines()) == shown
    assert f"saves {2 * number:.1f} µs per call" in text
    assert ("further products" in text) is bool(more)
    assert more in text
    assert len(report.to_json()["products"]) == number


def test_an_arm_without_times_has_dashes_and_its_failure_below():
    broken = ArmTimes("max-autotune", failure="out of memory")
    text = bench_report(bench([TIMED, broken], in_graphs=False)).to_text()
    assert [line.split() for line in text.splitlines() if line.startswith("max-autotune ")] == [
        ["max-autotune", *"-------"],
        ["max-autotune", "failed:", "out", "of", "memory"],
    ]
    assert "without CUDA graphs" in text
    assert "earlier arm" not in text


@pytest.mark.parametrize(("grad", "what"), [(False, "forward"), (True, "forward and backward")])
def test_the_head_says_what_a_call_is(grad, what):
    head = bench_report(replace(bench(), grad=grad)).to_text().splitlines()[0]
    assert head == f"m:f(), {what}, on NVIDIA H200, torch 2.13.0, in CUDA graphs"


def test_kernels_that_an_earlier_arm_chose_are_counted():
    text = bench_report(bench([TIMED, ArmTimes("table", (1e6,) * 9, shared_kernels=3)])).to_text()
    assert "kernels with the config that an earlier arm chose: table 3" in text


def test_the_interval_of_an_arm_is_half_its_width():
    samples = tuple(1e6 * (1 + number / 100) for number in range(5))
    assert "compile  1.020  1.96" in bench_report(bench([ArmTimes("compile", samples)])).to_text()


@pytest.mark.parametrize(
    ("outcome", "baseline_ns", "row_ns", "saved"),
    [("row", 3e3, 2e3, 2e3), ("aten row", 3e3, 2e3, 0), ("row", None, 2e3, 0), ("row", 3e3, None, 0)],
)
def test_only_a_row_that_runs_saves_time(outcome, baseline_ns, row_ns, saved):
    assert ProductGain("p", 2, outcome, "k", baseline_ns, row_ns).saved_ns == saved
