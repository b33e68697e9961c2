"""A final overrules earlier measurements of its finalists."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.final import FailedFinalist, Final, Finalist
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.tables.ranking import rank
from gemmtune.engine.tables.rows import build_table
from gemmtune.engine.tables.table_file import table_text

H200 = Device("H200", "NVIDIA H200", "sm_90a", 132, 232448, 233472, 62914560, 65536, 2048, 1024, 32, 1980, 4800)
PROBLEM = Problem.parse("2048x4096x4096:bf16:nt")
TOOLCHAIN = Toolchain((("torch", "2.13.0"),))


class Latency(Objective):
    protocol = "graph"
    unit = "ns"

    def score(self, measurement):
        return measurement.estimate.time_ns


def config(name):
    return Config({} if name == "aten" else {"name": name})


def task(name, problem=PROBLEM):
    return Task(problem, H200, {"aten": "aten", "cute": "cute_gemm"}.get(name, "triton_mm"))


def ok(name, time_ns, **changes):
    """Return a measurement as screening leaves it, with four samples and an interval of ∓ 2 %."""
    measurement = Measurement(
        task=task(name),
        config=config(name),
        status=Status.OK,
        evidence=Evidence.MEASURED,
        protocol="graph",
        toolchain=TOOLCHAIN,
        worker="host/0",
        created_at="2026-11-21T12:00:00Z",
        samples_ns=(float(time_ns),) * 4,
        estimate=Estimate(float(time_ns), time_ns * 0.98, time_ns * 1.02),
    )
    return replace(measurement, **changes)


def finalist(name, time_ns, low, high, samples=32):
    """Return a finalist whose time over the leader's, minus 1, lies between `low` and `high`."""
    estimate = Estimate(float(time_ns), time_ns - 0.5, time_ns + 0.5)
    return Finalist(task(name), config(name), TOOLCHAIN, estimate, (float(time_ns),) * samples, (low, high))


def leader(name, time_ns):
    return finalist(name, time_ns, 0.0, 0.0)


def final_of(*finalists, failed=(), **changes):
    out = tuple(FailedFinalist(task(name), config(name), "off by 0.3") for name in failed)
    return replace(Final(finalists, "graph", "host/0", "2026-11-21T13:00:00Z", out), **changes)


def row_of(measurements, *finals, **terms):
    (row,) = build(measurements, finals, **terms).rows
    return row


def build(measurements, finals, **terms):
    return build_table(H200, "latency", rank(H200, Latency(), measurements, finals=finals), **terms)


def names(configs):
    return [c.get("name", "aten") for c in configs]


def ranked(row):
    return names(choice.config for choice in row.choices)


FIELD = [ok("aten", 110), ok("a", 100), ok("b", 101), ok("c", 102), ok("d", 100.5)]


def test_the_leader_comes_first_and_finalists_have_the_times_and_samples_of_the_final():
    final = final_of(leader("c", 98), finalist("a", 99, 0.001, 0.02, samples=12), finalist("aten", 111, 0.12, 0.15))
    row = row_of(FIELD, final, choices=5)
    assert ranked(row) == ["c", "a", "aten", "d", "b"]
    first, second = row.choices[:2]
    assert (first.time_ns, first.low_ns, first.high_ns, first.samples) == (98, 97.5, 98.5, 32)
    assert (second.time_ns, second.low_ns, second.high_ns, second.samples) == (99, 98.5, 99.5, 12)
    assert (first.evidence, first.protocol, first.toolchain) == (Evidence.MEASURED, "graph", "torch 2.13.0")
    assert row.choices[3].time_ns == 100.5
    assert row.choices[3].samples == 4
    assert row.lead == pytest.approx(111 / 98 - 1)


def test_the_order_of_the_final_counts_even_against_its_times():
    final = final_of(leader("b", 100), finalist("a", 99.9, 0.0005, 0.002), finalist("aten", 110, 0.09, 0.11))
    row = row_of(FIELD, final)
    assert ranked(row) == ["b", "a", "aten"]
    assert row.tie_band == (config("b"),)


def test_a_config_outside_the_final_ranks_after_all_finalists():
    row = row_of([*FIELD, ok("new", 50)], final_of(leader("a", 100), finalist("aten", 110, 0.09, 0.11)), choices=9)
    assert ranked(row) == ["a", "aten", "new", "d", "b", "c"]
    assert row.tie_band == (config("a"),)


def test_the_tie_band_is_the_finals_within_the_leaders_space():
    final = final_of(
        leader("a", 100),
        finalist("cute", 100.1, -0.001, 0.003),
        finalist("b", 100.2, 0.0, 0.004),
        finalist("c", 100.3, 0.0001, 0.005),
        finalist("aten", 110, 0.09, 0.11),
    )
    row = row_of([*FIELD, ok("cute", 103)], final)
    assert names(row.tie_band) == ["a", "b"]


def test_the_regret_bound_is_the_finals():
    final = final_of(leader("a", 100), finalist("b", 100.2, -0.0031, 0.004), finalist("aten", 110, 0.09, 0.11))
    assert row_of(FIELD, final).regret_bound == pytest.approx(0.0031)
    assert row_of(FIELD, final_of(leader("a", 100))).regret_bound == 0
    assert row_of(FIELD).regret_bound is None


@pytest.mark.parametrize(
    ("low", "first"),
    [(0.0001, "a"), (0.0, "aten"), (-0.002, "aten")],
)
def test_a_baseline_in_the_final_is_beaten_if_it_is_not_in_the_tie_band(low, first):
    row = row_of(FIELD, final_of(leader("a", 100), finalist("aten", 102.4, low, 0.026)))
    assert ranked(row)[0] == first
    assert row.lead == pytest.approx(0.024)
    assert row.tie_band == (config("a"),)


def test_a_baseline_that_leads_the_final_comes_first():
    row = row_of(FIELD, final_of(leader("aten", 99), finalist("a", 100, 0.004, 0.012)))
    assert ranked(row) == ["aten", "a", "d"]
    assert (row.lead, row.tie_band) == (pytest.approx(-0.01), (config("aten"),))


def test_a_leader_ahead_by_less_than_the_margin_leaves_the_baseline_first():
    row = row_of(FIELD, final_of(leader("a", 100), finalist("aten", 101.9, 0.015, 0.022)))
    assert (ranked(row)[0], row.loss) == ("aten", pytest.approx(0.019))


@pytest.mark.parametrize(("measured", "first"), [(102.0, "aten"), (105.0, "a")])
def test_a_baseline_out_of_the_final_is_beaten_by_intervals(measured, first):
    # 100 ∓ 0.5 against 102 ∓ 2.04, which overlap, and against 105 ∓ 2.1, which do not and are 5 % apart
    row = row_of(
        [ok("aten", measured), ok("a", 103), ok("b", 104)], final_of(leader("a", 100), finalist("b", 101, 0.001, 0.02))
    )
    assert ranked(row)[0] == first


def test_a_config_that_failed_in_a_final_never_ships():
    early = final_of(leader("b", 101), failed=["a"])
    late = final_of(leader("c", 100), finalist("a", 100.1, -0.001, 0.002), finalist("aten", 110, 0.09, 0.11))
    other_protocol = final_of(leader("b", 101), failed=["d"], protocol="warm")
    row = row_of(FIELD, early, other_protocol, late, choices=9)
    assert ranked(row) == ["c", "aten", "b"]
    assert row.tie_band == (config("c"),)


def test_the_last_final_of_the_protocol_counts():
    early, late = (
        final_of(leader("a", 100), finalist("b", 101, 0.001, 0.02)),
        final_of(leader("b", 99), finalist("a", 100, 0.001, 0.02)),
    )
    assert ranked(row_of(FIELD, early, late))[0] == "b"
    assert ranked(row_of(FIELD, late, early))[0] == "a"
    assert ranked(row_of(FIELD, late, replace(early, protocol="warm")))[0] == "b"


def test_finals_of_another_device_problem_or_build_are_ignored():
    final = final_of(leader("c", 98), failed=["a"])

    def moved(where):
        return replace(
            final,
            finalists=tuple(replace(f, task=where) for f in final.finalists),
            failed=tuple(replace(out, task=where) for out in final.failed),
        )

    alone = row_of(FIELD)
    assert row_of(FIELD, moved(Task(PROBLEM, replace(H200, sku="H100"), "triton_mm"))) == alone
    assert row_of(FIELD, moved(Task(Problem(16, 16, 16), H200, "triton_mm"))) == alone
    rebuilt = replace(final.leader, toolchain=Toolchain((("torch", "2.14.0"),)))
    assert row_of(FIELD, final_of(rebuilt)) == alone


def test_a_final_whose_leader_may_not_be_ranked_still_orders_the_other_finalists():
    final = final_of(leader("a", 98), finalist("c", 99, 0.005, 0.015), finalist("b", 99.2, 0.006, 0.016))
    wrong = ok("a", 1, status=Status.WRONG_RESULT, estimate=None, samples_ns=(), protocol="warm")
    row = row_of([*FIELD, wrong], final, choices=9)
    assert ranked(row) == ["c", "b", "d", "aten"]
    assert row.choices[0].time_ns == 99
    assert names(row.tie_band) == ["c", "b", "d"]  # by intervals: ∓ 0.5, and 2 % for the few samples of d
    assert row.regret_bound is None


def test_a_replayed_problem_ignores_finals():
    replayed = [replace(m, evidence=Evidence.REPLAYED, protocol="recorded") for m in FIELD]
    assert row_of(replayed, final_of(leader("c", 98))) == row_of(replayed)


def test_the_table_of_finals_does_not_depend_on_the_order_of_the_measurements():
    measurements = [*FIELD, ok("cute", 103)]
    final = final_of(leader("c", 98), finalist("cute", 98.1, -0.001, 0.003), finalist("aten", 111, 0.12, 0.15))
    text = table_text(build(measurements, [final]))
    for seed in range(5):
        random.Random(seed).shuffle(measurements)
        assert table_text(build(measurements, iter([final]))) == text


def test_the_date_of_a_table_is_that_of_a_newer_final():
    final = final_of(leader("c", 98), created_at="2026-11-24T01:00:00Z")
    assert build(FIELD, [final]).measured_at == "2026-11-24"
    assert build(FIELD, []).measured_at == "2026-11-21"
