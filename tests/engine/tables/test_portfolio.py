from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.final import Final, Finalist
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.tables.loss_limits import LossLimits
from gemmtune.engine.tables.portfolio import choose
from gemmtune.engine.tables.ranking import rank
from gemmtune.engine.tables.rows import build_table
from gemmtune.engine.tables.table_file import table_text

H200 = Device("H200", "NVIDIA H200", "sm_90a", 132, 232448, 233472, 62914560, 65536, 2048, 1024, 32, 1980, 4800)
TOOLCHAIN = Toolchain((("torch", "2.13.0"),))


class Latency(Objective):
    protocol = "graph"
    unit = "ns"

    def score(self, measurement):
        return measurement.estimate.time_ns


def ok(m, name, time_ns, spread=0.0, samples=9, **changes):
    """Return an ok measurement of config `name` on m×64×64; a name may begin with its space, `aten` or `cute`."""
    space = {"aten": "aten", "cute": "cute_gemm"}.get(name[:4], "triton_mm")
    problem = m if isinstance(m, Problem) else Problem(m, 64, 64)
    measurement = Measurement(
        task=Task(problem, H200, space),
        config=Config({} if space == "aten" else {"name": name}),
        status=Status.OK,
        evidence=Evidence.MEASURED,
        protocol="graph",
        toolchain=TOOLCHAIN,
        worker="host/0",
        created_at="2026-11-21T12:00:00Z",
        samples_ns=(float(time_ns),) * samples,
        estimate=Estimate(float(time_ns), time_ns * (1 - spread), time_ns * (1 + spread)),
    )
    return replace(measurement, **changes)


def chosen(*measurements, worst=0.02, mean=0.005, finals=(), **terms):
    return choose(rank(H200, Latency(), measurements, finals=finals), LossLimits(worst, mean), **terms)


def names(portfolio):
    """Return the name of the config that serves each (m, space)."""
    return {(pick.problem.m, pick.space): pick.config["name"] for pick in portfolio.picks}


def triton(**served):
    return {(int(m[1:]), "triton_mm"): name for m, name in served.items()}


TWO = (ok(1, "a", 100), ok(1, "c", 100.5), ok(2, "b", 200), ok(2, "c", 201), ok(1, "aten", 150), ok(2, "aten", 300))


def test_a_config_that_won_nowhere_serves_two_problems():
    portfolio = chosen(*TWO)
    assert names(portfolio) == triton(m1="c", m2="c")
    assert [pick.own["name"] for pick in portfolio.picks] == ["a", "b"]
    assert [pick.loss for pick in portfolio.picks] == [pytest.approx(0.005), pytest.approx(0.005)]


def test_no_problem_loses_more_than_the_worst_nor_all_more_than_the_mean():
    assert names(chosen(*TWO, worst=0.0049)) == triton(m1="a", m2="b")
    assert names(chosen(*TWO, mean=0.0049)) == triton(m1="a", m2="b")
    heavy = [replace(m, task=replace(m.task, problem=replace(m.task.problem, weight=9.0))) for m in TWO[:2]]
    one_sided = (*heavy, ok(2, "b", 200), ok(2, "c", 203), ok(1, "aten", 150), ok(2, "aten", 300))
    assert names(chosen(*one_sided, mean=0.0061)) == triton(m1="c", m2="c")  # 0.9 · 0.5 % + 0.1 · 1.5 %
    assert names(chosen(*one_sided, mean=0.0059)) == triton(m1="a", m2="b")


@pytest.mark.parametrize(
    ("samples", "spread", "serves"),
    [(9, 0.04, True), (6, 0.04, True), (5, 0.02, False), (5, 0.014, True), (2, 0.02, False), (1, 0.0, False)],
)
def test_a_config_with_few_launches_must_keep_the_limit_with_its_upper_end(samples, spread, serves):
    field = [ok(1, "a", 100), ok(2, "c", 200), ok(1, "c", 100.5, spread=spread, samples=samples)]
    portfolio = chosen(*field)
    assert names(portfolio) == triton(m1="c" if serves else "a", m2="c")
    if serves:
        assert portfolio.picks[0].bound == pytest.approx(1.005 * (1 + spread) - 1)


def test_a_single_launch_is_enough_if_the_best_has_no_more():
    field = [ok(1, "a", 100, samples=1), ok(2, "c", 200, samples=1), ok(1, "c", 100.5, samples=1)]
    assert names(chosen(*field)) == triton(m1="c", m2="c")


def test_problems_served_by_the_baseline_need_no_config():
    field = (ok(1, "a", 100), ok(1, "aten", 101), ok(2, "b", 100), ok(2, "aten", 90))
    assert chosen(*field).picks == ()
    assert names(chosen(*field, margin=0.01)) == triton(m1="a")


def test_every_config_of_the_portfolio_beats_the_baseline_by_the_margin():
    field = (*TWO[:4], ok(1, "aten", 102.2), ok(2, "aten", 300))
    assert names(chosen(*field)) == triton(m1="a", m2="b")  # 102.2 / 100.5 is 1.7 %
    assert names(chosen(*field, margin=0.015)) == triton(m1="c", m2="c")
    noisy = (ok(1, "a", 100), ok(1, "c", 100.5, spread=0.02), *TWO[2:4], ok(1, "aten", 102.4), ok(2, "aten", 300))
    assert names(chosen(*noisy, margin=0.0)) == triton(m1="a", m2="b")  # 100.5 + 2 % meets 102.4


def test_problems_of_other_types_or_spaces_share_no_config():
    half = Problem.parse("2x64x64:fp16:nt")
    field = [ok(1, "a", 100), ok(1, "c", 100.5), ok(half, "b", 200), ok(half, "c", 201)]
    assert names(chosen(*field)) == triton(m1="a", m2="b")
    field = [ok(1, "a", 100), ok(1, "cute", 100.5), ok(2, "cute", 200), ok(2, "a", 201)]
    assert names(chosen(*field)) == {(1, "triton_mm"): "a", (2, "cute_gemm"): "cute"}


def test_among_equals_the_config_chosen_for_another_family_is_taken():
    half = Problem.parse("2x64x64:fp16:nt")
    field = [ok(1, "z", 100), ok(half, "b", 200), ok(half, "z", 200)]
    assert names(chosen(*field)) == triton(m1="z", m2="z")


def test_a_space_run_alone_is_served_also_where_another_space_leads():
    field = [ok(m, name, time) for m in (1, 2) for name, time in (("aten", 90), ("a", 95), ("cute-c", 101))]
    field += [ok(1, "cute-a", 100.5), ok(2, "cute-b", 100.5)]
    assert chosen(*field).picks == ()
    portfolio = chosen(*field, alone={"cute_gemm", "quack_gemm"})
    assert names(portfolio) == {(1, "cute_gemm"): "cute-c", (2, "cute_gemm"): "cute-c"}
    table = build_table(H200, "latency", rank(H200, Latency(), field), portfolio=portfolio)
    assert [[c.space for c in row.choices] for row in table.rows] == [["aten", "triton_mm", "cute_gemm"]] * 2
    assert [row.choices[2].config["name"] for row in table.rows] == ["cute-c"] * 2


def test_finalists_count_by_the_times_of_their_final():
    task = Task(Problem(1, 64, 64), H200, "triton_mm")

    def finalist(name, time_ns, behind):
        estimate = Estimate(time_ns, time_ns - 0.1, time_ns + 0.1)
        return Finalist(task, Config({"name": name}), TOOLCHAIN, estimate, (time_ns,) * 32, behind)

    screened = (ok(1, "a", 100, samples=2), ok(1, "c", 108, samples=2), *TWO[2:4])
    assert names(chosen(*screened)) == triton(m1="a", m2="b")
    final = Final(
        (finalist("a", 100.0, (0.0, 0.0)), finalist("c", 100.5, (0.003, 0.007))), "graph", "host/0", "2026-11-21"
    )
    assert names(chosen(*screened, finals=[final])) == triton(m1="c", m2="c")


def test_rows_list_the_portfolios_config_first_with_its_loss():
    rankings = rank(H200, Latency(), TWO)
    table = build_table(H200, "latency", rankings, portfolio=choose(rankings, LossLimits()))
    assert [[c.config.get("name") for c in row.choices] for row in table.rows] == [["c", "a", None], ["c", "b", None]]
    assert [row.loss for row in table.rows] == [pytest.approx(0.005), pytest.approx(0.005)]
    assert [row.fastest.config["name"] for row in table.rows] == ["a", "b"]
    assert [row.lead for row in table.rows] == [pytest.approx(150 / 100.5 - 1)] * 2  # of the kernel that ships
    assert [row.loss for row in build_table(H200, "latency", rankings).rows] == [0, 0]


def test_the_table_does_not_depend_on_the_order_of_the_measurements():
    draw = random.Random(0)
    field = [ok(m, f"t{i}", 100 * (1 + draw.uniform(0, 0.03))) for m in range(1, 9) for i in range(12)]

    def text():
        rankings = rank(H200, Latency(), field)
        return table_text(build_table(H200, "latency", rankings, portfolio=choose(rankings, LossLimits())))

    first = text()
    for seed in range(3):
        random.Random(seed).shuffle(field)
        assert text() == first


@pytest.mark.parametrize(("limits", "caught"), [((-0.1, 0.0), "worst=-0.1"), ((0.02, float("nan")), "mean=nan")])
def test_limits_below_zero_or_nan_are_refused(limits, caught):
    with pytest.raises(UsageError, match=rf"portfolio\.{caught} is not a number from 0 on"):
        LossLimits(*limits)
