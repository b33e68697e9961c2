from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import DeviceState, Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.statistics import median_interval
from gemmtune.engine.tables.earlier import with_earlier
from gemmtune.engine.tables.ranking import rank
from gemmtune.engine.tables.rows import build_table, unserved
from gemmtune.engine.tables.table_file import parse_table, table_text

H200 = Device("H200", "NVIDIA H200", "sm_90a", 132, 232448, 233472, 62914560, 65536, 2048, 1024, 32, 1980, 4800)
H100 = replace(H200, sku="H100", name="NVIDIA H100 80GB HBM3", l2_bytes=52428800)
PROBLEM = "2048x4096x4096:bf16:nt"


class Fastest(Objective):
    protocol = "events"
    unit = "ns"

    def score(self, measurement):
        return measurement.estimate.time_ns


def ok(space, samples, tile=0, problem=PROBLEM, **changes):
    measurement = Measurement(
        task=Task(Problem.parse(problem), H200, space),
        config=Config({"tile": tile} if space != "aten" else {}),
        status=Status.OK,
        evidence=Evidence.MEASURED,
        protocol="events",
        toolchain=Toolchain((("torch", "2.13.0"),)),
        worker="host/0",
        created_at="2026-11-21T12:00:00Z",
        samples_ns=tuple(float(s) for s in samples),
        estimate=Estimate(*median_interval(samples)) if samples else None,
    )
    return replace(measurement, **changes)


def estimated(time_ns, tile):
    estimate = Estimate(time_ns, time_ns, time_ns)
    return ok("cute_gemm", [], tile, evidence=Evidence.ESTIMATED, estimate=estimate, protocol="estimate: toy 1.0")


def around(center, spread=1):
    """Return nine samples, whose 95 % interval is center ∓ 3·spread."""
    return [center + spread * i for i in range(-4, 5)]


def build(*measurements, **terms):
    return build_table(H200, "latency", rank(H200, Fastest(), measurements), **terms)


def only_row(*measurements, **terms):
    (row,) = build(*measurements, **terms).rows
    return row


def test_a_faster_config_comes_first_with_its_interval_and_lead():
    row = only_row(ok("aten", around(110)), ok("triton_mm", around(100), tile=64))
    first = row.choices[0]
    assert (first.space, first.config) == ("triton_mm", Config({"tile": 64}))
    assert (first.time_ns, first.low_ns, first.high_ns, first.samples) == (100, 97, 103, 9)
    assert (first.toolchain, first.protocol, first.evidence) == ("torch 2.13.0", "events", Evidence.MEASURED)
    assert row.baseline == row.choices[1]
    assert row.lead == pytest.approx(0.10)


def test_a_row_takes_the_estimate_and_not_the_raw_samples():
    drifted = ok("triton_mm", around(200), tile=1, estimate=Estimate(100.0, 99.0, 102.0), drift=2.0)
    first = only_row(ok("aten", around(110)), ok("triton_mm", around(104), tile=2), drifted).choices[0]
    assert first.config == Config({"tile": 1})
    assert (first.time_ns, first.low_ns, first.high_ns, first.samples) == (100, 99, 102, 9)


def test_intervals_that_touch_leave_the_baseline_first():
    row = only_row(ok("aten", around(106)), ok("triton_mm", around(100)))  # 100 + 3 = 106 - 3
    assert [c.space for c in row.choices] == ["aten", "triton_mm"]
    assert row.lead == pytest.approx(0.06)


def test_slower_contenders_leave_the_baseline_first_and_have_a_lead_below_zero():
    row = only_row(ok("aten", around(100)), ok("triton_mm", around(120)))
    assert [c.space for c in row.choices] == ["aten", "triton_mm"]
    assert row.lead == pytest.approx(100 / 120 - 1)
    assert row.tie_band == (Config({}),)
    assert row.regret_bound is None


@pytest.mark.parametrize(("samples", "first"), [([98.1], "aten"), ([98.0], "triton_mm"), ([98.05] * 5, "aten")])
def test_a_choice_with_few_samples_needs_a_lead_of_two_percent(samples, first):
    # 100 / 98.1 is 1.9 % and 100 / 98.0 is 2.04 %
    assert only_row(ok("aten", [100.0]), ok("triton_mm", samples)).choices[0].space == first


@pytest.mark.parametrize(
    ("time", "margin", "first", "loss"),
    [
        (981, 0.02, "aten", 1000 / 981 - 1),
        (980, 0.02, "triton_mm", 0),
        (990, 0.01, "triton_mm", 0),
        (994, 0, "aten", 1000 / 994 - 1),  # 994 + 3 = 1000 - 3
        (993, 0, "triton_mm", 0),
    ],
)
def test_a_row_ships_a_choice_that_beats_the_baseline_beyond_noise_and_margin(time, margin, first, loss):
    row = only_row(ok("aten", around(1000)), ok("triton_mm", around(time)), margin=margin)
    assert row.choices[0].space == first
    assert row.lead == pytest.approx(1000 / time - 1)
    assert row.loss == pytest.approx(loss)
    assert row.fastest.space == "triton_mm"


def test_equal_scores_are_ranked_by_the_config():
    tied = [ok("triton_mm", around(100), tile=tile) for tile in (64, 128, 16)]
    row = only_row(ok("aten", around(150)), *tied, choices=4)
    assert [c.config.get("tile") for c in row.choices] == [128, 16, 64, None]  # JSON text, not number


def test_tie_band_holds_the_configs_that_the_fastest_does_not_beat():
    row = only_row(
        ok("aten", around(150)),
        ok("triton_mm", around(100), tile=1),
        ok("triton_mm", around(105), tile=2),
        ok("triton_mm", around(107), tile=3),
        ok("other", around(100.5), tile=4),
    )
    assert row.tie_band == (Config({"tile": 1}), Config({"tile": 2}))


def test_a_row_has_the_requested_number_of_choices_and_the_best_of_every_other_space():
    field = [ok("triton_mm", around(200 + i), tile=i) for i in range(9)]
    assert len(only_row(ok("aten", around(100)), *field, choices=2).choices) == 2
    others = [ok("cute_gemm", around(300 + i), tile=i) for i in range(3)]
    row = only_row(ok("aten", around(400)), *field, *others, choices=2)
    assert [(c.space, c.config.get("tile")) for c in row.choices] == [
        ("triton_mm", 0),
        ("triton_mm", 1),
        ("cute_gemm", 0),
        ("aten", None),
    ]
    with pytest.raises(ValueError, match="choices=0 is below 1"):
        build(choices=0)


def test_the_baseline_may_be_missing_or_alone():
    assert only_row(ok("triton_mm", [100])).baseline is None
    assert only_row(ok("triton_mm", [100])).lead is None
    assert [c.space for c in only_row(ok("aten", [100])).choices] == ["aten"]


def test_an_estimate_makes_a_row_only_where_nothing_was_measured_or_replayed():
    guess = estimated(10, tile=1)
    assert [c.space for c in only_row(ok("aten", around(100)), guess).choices] == ["aten"]
    replayed = ok("triton_mm", around(90), tile=2, evidence=Evidence.REPLAYED)
    assert [c.config for c in only_row(replayed, guess).choices] == [Config({"tile": 2})]
    row = only_row(guess, estimated(20, tile=3))
    assert [(c.time_ns, c.samples, c.evidence) for c in row.choices] == [
        (10, 0, Evidence.ESTIMATED),
        (20, 0, Evidence.ESTIMATED),
    ]
    assert (row.baseline, row.lead, row.regret_bound) == (None, None, None)


def test_configs_with_equal_estimates_tie():
    row = only_row(estimated(100, tile=1), estimated(100, tile=2), estimated(101, tile=3), estimated(103, tile=4))
    assert [config["tile"] for config in row.tie_band] == [1, 2, 3]


def test_a_measured_problem_ignores_replayed_times_and_other_protocols():
    replayed = ok("triton_mm", around(10), tile=1, evidence=Evidence.REPLAYED, protocol="recorded")
    other = ok("triton_mm", around(20), tile=2, protocol="warm-l2")
    row = only_row(ok("aten", around(100)), ok("triton_mm", around(90), tile=3), replayed, other)
    assert [c.config.get("tile") for c in row.choices] == [3, None]
    assert only_row(replayed).choices[0].evidence is Evidence.REPLAYED


def test_a_config_with_one_wrong_result_never_ships():
    wrong = ok("triton_mm", [], tile=1, status=Status.WRONG_RESULT)
    row = only_row(ok("aten", around(100)), ok("triton_mm", around(50), tile=1), wrong)
    assert [c.space for c in row.choices] == ["aten"]


def test_the_longer_of_two_runs_of_a_config_counts_then_the_later():
    short = ok("triton_mm", [50], created_at="2026-11-22T12:00:00Z")
    first = ok("triton_mm", around(100))
    second = ok("triton_mm", around(101), created_at="2026-11-21T13:00:00Z")
    assert only_row(short, first, second).choices[0].time_ns == 101
    assert len(only_row(short, first, second).choices) == 1


def test_another_device_is_refused_by_name():
    stray = ok("triton_mm", [100], task=Task(Problem.parse(PROBLEM), H100, "triton_mm"))
    with pytest.raises(DeviceError, match=r"NVIDIA H100 80GB HBM3 \(sku='H100'\), the table is for NVIDIA H200"):
        build(stray)


def test_problems_without_an_ok_measurement_are_named():
    failed = ok("aten", [], problem="1x1x1:fp16:nn", status=Status.RUN_FAILED, reason="no kernel")
    measurements = [ok("aten", [100]), failed]
    table = build(*measurements)
    assert [row.problem.name for row in table.rows] == [PROBLEM]
    assert [p.name for p in unserved(table, measurements)] == ["1x1x1:fp16:nn"]


def test_the_table_does_not_depend_on_the_order_of_the_measurements():
    problems = ["16x4096x4096:bf16:nt", PROBLEM, "512x64x3420:fp32:tn"]
    measurements = [
        ok(space, around(100 + (7 * tile) % 5), tile=tile, problem=problem)
        for problem in problems
        for space in ("aten", "triton_mm")
        for tile in range(4 if space == "triton_mm" else 1)
    ]
    text = table_text(build(*measurements))
    for seed in range(5):
        random.Random(seed).shuffle(measurements)
        assert table_text(build(*measurements)) == text
    assert [row.problem.name for row in build(*measurements).rows] == sorted(problems)


def test_the_heaviest_weight_of_a_problem_is_kept():
    heavy = replace(Problem.parse(PROBLEM), weight=3.0)
    row = only_row(ok("aten", [100]), ok("triton_mm", [100], task=Task(heavy, H200, "triton_mm")))
    assert row.problem.weight == 3.0


def test_the_table_holds_its_margin_and_the_date_of_the_newest_measurement_behind_a_row():
    older, newer = ok("aten", around(100)), ok("triton_mm", around(90), created_at="2026-11-23T23:59:59Z")
    failed = replace(older, status=Status.RUN_FAILED, estimate=None, created_at="2026-11-25T12:00:00Z")
    found = build(older, newer, failed, margin=0.05)
    assert (found.margin, found.measured_at) == (0.05, "2026-11-23")


def test_the_table_names_each_driver_that_measured_a_row_and_keeps_those_of_earlier_rows():
    states = {name: DeviceState(1980, 3201, 41, 432_100, driver=name) for name in ("580.95.05", "575.51", "570.1")}
    problem = "64x64x64:bf16:nt"
    first, second = ok("aten", around(100), before=states["580.95.05"]), ok("triton_mm", around(90))
    third, other = (
        ok("aten", around(100), problem=p, before=states[d]) for p, d in ((PROBLEM, "575.51"), (problem, "570.1"))
    )
    assert build(first, second).drivers == ("580.95.05",)
    assert build(first, replace(third, config=Config({"x": 1}))).drivers == ("575.51", "580.95.05")
    assert build(second).drivers == ()
    table, *_ = with_earlier(build(first), build(other), {first.task.problem})
    assert table.drivers == ("570.1", "580.95.05")
    assert parse_table(table_text(table), "t") == table


def test_a_replayed_table_has_no_date():
    assert build(ok("aten", around(100), evidence=Evidence.REPLAYED)).measured_at == ""


def test_kept_rows_bring_their_date_and_not_their_margin():
    new = build(ok("aten", around(100)), margin=0.02)
    other = ok("aten", around(100), problem="64x64x64:bf16:nt", created_at="2026-11-22T12:00:00Z")
    table, fates = with_earlier(new, build(other, margin=0.1), {new.rows[0].problem})
    assert (len(fates), table.margin, table.measured_at) == (1, 0.02, "2026-11-22")


def test_of_a_tie_the_kernel_that_needs_torch_alone_comes_first():
    row = only_row(ok("cute_gemm", around(100), 1), ok("triton_mm", around(101), 2), ok("aten", around(150)))
    assert [choice.space for choice in row.choices[:2]] == ["triton_mm", "cute_gemm"]
    assert row.loss == pytest.approx(0.01)
    assert row.fastest.space == "cute_gemm"


def test_a_faster_kernel_that_needs_more_stays_first():
    row = only_row(ok("cute_gemm", around(100)), ok("triton_mm", around(120)), ok("aten", around(150)))
    assert row.choices[0].space == "cute_gemm"


def test_a_tie_with_a_kernel_that_may_not_ship_changes_nothing():
    row = only_row(ok("cute_gemm", around(100)), ok("triton_mm", around(104, 2)), ok("aten", around(105, 0.5)))
    assert row.choices[0].space == "cute_gemm"
