"""From plan to table: the tasks of a campaign, and what it finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.api.recording import landscape_from
from gemmtune.engine.campaign import result as outcome
from gemmtune.engine.campaign.estimated_backend import estimated_backend
from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.measured_backend import measured_backend, unsearched
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.replayed_backend import (
    completed,
    read_all,
    recorded_device,
    replayed_backend,
)
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import DeviceError, LandscapeError, UnknownPlugin, UsageError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.landscape import Point
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes, write_landscapes
from gemmtune.engine.tables.loss_limits import LossLimits

H200 = catalogue.device("H200")
DECODE, MIDDLE = Problem.parse("16x4096x4096"), Problem.parse("128x2880x2880")
PLAN = Plan(problems=(DECODE, MIDDLE), sampler="random", budget=9)


@pytest.fixture(scope="module")
def recorded():
    landscapes = read_all(embedded())
    return tuple(landscape for landscape in landscapes if landscape.problem in (DECODE, MIDDLE))


def only(landscapes, space):
    return tuple(landscape for landscape in landscapes if landscape.context["space"] == space)


def row_of(result):
    (row,) = result.table.rows
    return row


def executed(plan, landscapes, path):
    with Database.open(path) as database:
        return execute(plan, replayed_backend(plan, landscapes), database, ())


def replayed(plan, landscapes):
    return replayed_backend(plan, landscapes).searches


def measured(plan):
    return measured_backend(plan, H200, lambda spaces: ReplayExecutor(())).searches


def test_the_baseline_of_each_problem_is_a_task_and_comes_first(recorded):
    for searches in (replayed(PLAN, recorded), measured(PLAN)):
        assert [(search.task.problem, search.task.space, search.budget) for search in searches] == [
            (DECODE, "aten", 1),
            (DECODE, "triton_mm", 9),
            (MIDDLE, "aten", 1),
            (MIDDLE, "triton_mm", 9),
        ]


def test_a_space_named_twice_and_the_baseline_named_are_searched_once(recorded):
    plan = replace(PLAN, spaces=("triton_mm", "aten", "triton_mm"), problems=(DECODE,))
    assert [search.task.space for search in replayed(plan, recorded)] == ["aten", "triton_mm"]


def test_without_problems_every_recorded_one_is_tuned(recorded):
    searches = replayed(replace(PLAN, problems=()), recorded)
    assert {search.task.problem for search in searches} == {DECODE, MIDDLE}


def test_findings_say_what_was_found_against_baseline_and_optimum(recorded, tmp_path):
    plan = replace(PLAN, sampler="exhaustive", budget=10**6, problems=(DECODE,))
    result = executed(plan, recorded, tmp_path / "m.db")
    (finding,) = result.findings
    (landscape,) = [x for x in only(recorded, "triton_mm") if x.problem == DECODE]
    (baseline,) = [x for x in only(recorded, "aten") if x.problem == DECODE]
    assert (finding.problem, finding.space, finding.fraction_of_optimum) == (DECODE, "triton_mm", 1.0)
    assert finding.score == landscape.optimum_ns
    assert finding.baseline_score == baseline.optimum_ns
    assert landscape.points[finding.config].time_ns == landscape.optimum_ns
    with Database.open(tmp_path / "m.db") as database:
        assert finding.evaluations == sum(m.task.space == "triton_mm" for m in database.measurements())
    assert [(m.task.space, m.config) for m in result.measurements] == [
        ("aten", row_of(result).baseline.config),
        ("triton_mm", finding.config),
    ]
    row = row_of(result)
    assert (row.problem, row.choices[0].space) == (DECODE, "triton_mm")
    assert row.baseline.time_ns == baseline.optimum_ns


def test_failures_are_counted_by_status_and_cost_budget(recorded, tmp_path):
    (landscape,) = [x for x in only(recorded, "triton_mm") if x.problem == DECODE]
    points = dict(landscape.points)
    for config in list(points)[::2]:
        points[config] = Point(config, Status.BUILD_FAILED, None, reason="no")
    broken = (replace(landscape, points=points), *only(recorded, "aten"))
    plan = replace(PLAN, problems=(DECODE,), sampler="exhaustive", budget=20)
    (finding,) = executed(plan, broken, tmp_path / "m.db").findings
    assert finding.evaluations == 20
    assert 5 < finding.failures["build_failed"] < 20
    nothing = {config: Point(config, Status.RUN_FAILED, None) for config in points}
    (finding,) = executed(plan, (replace(landscape, points=nothing),), tmp_path / "n.db").findings
    assert (finding.config, finding.score, finding.baseline_score) == (None, None, None)
    assert finding.fraction_of_optimum is None


def test_the_table_is_built_from_everything_in_the_database(recorded, tmp_path):
    full = replace(PLAN, sampler="exhaustive", budget=10**6, problems=(DECODE,))
    best = executed(full, recorded, tmp_path / "m.db").table
    again = executed(replace(full, sampler="random", budget=2), recorded, tmp_path / "m.db")
    assert again.table == best
    assert again.findings[0].evaluations == 2


def test_landscapes_may_omit_the_space_and_the_device(recorded):
    bare = tuple(replace(landscape, context={}) for landscape in only(recorded, "triton_mm"))
    filled = completed(bare, PLAN.spaces, H200)
    assert recorded_device(filled) == H200
    searches = replayed(PLAN, filled)
    assert [search.task.space for search in searches] == ["triton_mm", "triton_mm"]  # never taken for the baseline
    assert completed(recorded, ("x", "y"), catalogue.device("B200")) == recorded
    with pytest.raises(LandscapeError, match=r"no column task\.space: search one space, not x and y"):
        completed(bare, ("x", "y"), H200)
    with pytest.raises(LandscapeError, match=r"no column task\.device"):
        recorded_device(completed(bare, PLAN.spaces, None))


def test_all_problems_that_are_not_recorded_are_refused_in_one_message_with_those_that_are(recorded):
    other = replace(PLAN, problems=(*PLAN.problems, Problem(17, 4096, 4096), Problem(18, 4096, 4096)))
    with pytest.raises(LandscapeError, match=r"^17x4096x4096:bf16:nt, 18x4096x4096:bf16:nt are not recorded in space"):
        replayed(other, recorded)
    many = replace(PLAN, problems=tuple(Problem(m, 4096, 4096) for m in range(17, 37)))
    with pytest.raises(LandscapeError, match=r"^17x(\S+ ){7}24x\S+ and 12 more are not recorded in space"):
        replayed(many, recorded)
    other = replace(PLAN, problems=(Problem(17, 4096, 4096),))
    with pytest.raises(LandscapeError, match=r"17x4096x4096:bf16:nt is not recorded in space triton_mm.*16x4096x4096"):
        replayed(other, recorded)
    with pytest.raises(LandscapeError, match="nothing is recorded in space triton_mm; recorded: aten"):
        replayed(replace(PLAN, problems=()), only(recorded, "aten"))
    with pytest.raises(UnknownPlugin, match="no space 'nope'"):
        replayed(replace(PLAN, spaces=("nope",)), recorded)


def test_a_device_the_catalogue_lacks_and_two_devices_are_refused(recorded):
    def of(sku, landscape):
        return replace(landscape, context=dict(landscape.context) | {"device": sku})

    with pytest.raises(DeviceError, match="no device 'H2000'"):
        recorded_device([of("H2000", recorded[0])])
    with pytest.raises(LandscapeError, match=r"2 devices \(H100, H200\)"):
        recorded_device([of("H100", recorded[0]), recorded[1]])
    with pytest.raises(LandscapeError, match="gemmtune compare"):
        recorded_device([replace(recorded[0], problem=None)])


def test_nothing_to_measure_is_refused_with_the_reason():
    with pytest.raises(UsageError, match="no problem to tune"):
        measured(Plan())
    with pytest.raises(
        UsageError, match=r"aten has nothing for 16x512x1024:int8:nt on H200: aten::_int_mm wants m of at"
    ):
        measured(Plan(problems=(Problem.parse("16x512x1024:int8:nt"),), spaces=("aten",)))


def test_a_problem_that_the_vendor_has_no_kernel_for_is_searched_without_a_baseline():
    served, unserved = Problem.parse("32x512x1024:int8:nt"), Problem.parse("16x512x1024:int8:nt")
    found = measured(Plan(problems=(served, unserved), spaces=("cute_gemm",)))
    assert [(x.task.problem, x.task.space) for x in found] == [
        (served, "aten"),
        (served, "cute_gemm"),
        (unserved, "cute_gemm"),
    ]


def test_a_problem_is_searched_in_the_spaces_that_serve_it_and_the_others_are_named():
    ragged, whole = Problem.parse("64x512x1021"), Problem.parse("64x512x1024")
    plan = Plan(problems=(ragged, whole), spaces=("triton_mm", "cute_gemm"))
    found = measured(plan)
    assert [(x.task.problem, x.task.space) for x in found] == [
        (ragged, "aten"),
        (ragged, "triton_mm"),
        (whole, "aten"),
        (whole, "triton_mm"),
        (whole, "cute_gemm"),
    ]
    [notice] = unsearched(plan, [search.task for search in found])
    assert notice.startswith("1 of 2 problems are not searched in cute_gemm: ")
    assert "nothing for 64x512x1021:bf16:nt on H200: rows of A of 2042 B" in notice
    with pytest.raises(UsageError, match=r"cute_gemm has nothing for 64x512x1021.*; space cute_gemv has nothing"):
        measured(Plan(problems=(ragged,), spaces=("cute_gemm", "cute_gemv")))


def test_a_campaign_notes_the_problems_that_a_space_does_not_serve(recorded, tmp_path):
    class Listener(Callback):
        def __init__(self):
            self.heard = []

        def on_notice(self, line):
            self.heard.append(line)

    listener = Listener()
    plan = replace(PLAN, problems=(DECODE,), spaces=("triton_mm", "cute_gemm"))
    backend = replayed_backend(replace(plan, spaces=("triton_mm",)), recorded)
    with Database.open(f"sqlite:///{tmp_path}/m.db") as store:
        execute(plan, backend, store, [listener])
    assert [notice[:41] for notice in listener.heard] == ["1 of 1 problems are not searched in cute_"]


def estimated(sku="B200", **changes):
    plan = replace(PLAN, **{"spaces": ("toy_priced",), "problems": (DECODE,), **changes})
    return estimated_backend(plan, catalogue.device(sku), "No GPU here").searches


@pytest.mark.usefixtures("toy_priced")
def test_an_estimated_campaign_evaluates_the_best_estimates_and_no_baseline():
    (search,) = estimated(budget=3)
    assert (search.task.space, search.budget) == ("toy_priced", 3)
    assert [config["TILE"] for config in search.next_batch()] == [1, 2, 3]
    (search,) = estimated(budget=99)
    assert search.budget == 8  # of ten tiles one is infeasible, and of one the model has no opinion


@pytest.mark.usefixtures("toy_priced")
def test_a_space_of_another_kind_of_problem_is_not_asked_for_estimates(monkeypatch):
    other, find = type("Other", (type(registry.space("toy_priced")),), {"workload": "vllm_moe"}), registry.space
    monkeypatch.setattr(registry, "space", lambda name: other() if name == "triton_mm" else find(name))
    (search,) = estimated(spaces=("toy_priced", "triton_mm"))
    assert search.task.space == "toy_priced"


@pytest.mark.usefixtures("toy_priced")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"problems": ()}, "no problem to tune"),
        (
            {"spaces": ("toy_priced", "triton_mm")},
            "nothing estimates 16x4096x4096:bf16:nt: space triton_mm has no analytic model",
        ),
        (
            {"spaces": ("aten",)},
            "nothing estimates 16x4096x4096:bf16:nt: space aten has no analytic model",
        ),
        ({"sku": "L4"}, "nothing estimates .*: the toy model does not know the NVIDIA L4"),
        ({"objective": "energy"}, "objective energy needs energy, which no model estimates: minimise latency"),
    ],
)
def test_a_task_without_an_estimate_is_refused_with_the_reason(changes, said):
    with pytest.raises(UsageError, match=said):
        estimated(**changes)


@pytest.mark.usefixtures("toy_priced")
def test_estimates_of_two_models_are_not_compared(monkeypatch):
    class Other(type(registry.space("toy_priced"))):
        def prior(self, task):
            return replace(super().prior(task), model="another model 2.0")

    find = registry.space
    monkeypatch.setattr(registry, "space", lambda name: Other() if name == "triton_mm" else find(name))
    with pytest.raises(UsageError, match="toy_priced and triton_mm have models of their own, not to be compared"):
        estimated(spaces=("toy_priced", "triton_mm"))


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        ("energy", r"has no energy \(protocol events-cold-l2\): measure on a GPU .*, or minimise latency"),
        ("latency_energy", r"has no energy \(protocol events-cold-l2\)"),
        ("latency_warm", r"graph-warm-l2, and H200/aten/16x4096x4096:bf16:nt was recorded with events-cold-l2"),
    ],
)
def test_an_objective_that_was_not_recorded_is_refused(recorded, objective, said):
    with pytest.raises(UsageError, match=said):
        replayed(replace(PLAN, objective=objective), recorded)


def test_only_an_objective_of_the_recorded_cache_state_is_replayed(recorded):
    def by(protocol):
        return [replace(x, context=dict(x.context) | {"protocol": protocol}) for x in recorded]

    warm = replace(PLAN, objective="latency_warm")
    for plan, protocol in ((warm, "graph-warm-l2"), (warm, ""), (PLAN, "cold_l2"), (PLAN, "graph-cold-l2+energy")):
        assert len(replayed(plan, by(protocol))) == 4
    with pytest.raises(UsageError, match="recorded with graph-warm-l2: measure on a GPU, or minimise latency_warm"):
        replayed(PLAN, by("graph-warm-l2"))


def test_a_sweep_becomes_the_landscape_it_was_replayed_from(recorded, tmp_path):
    plan = replace(PLAN, sampler="exhaustive", budget=10**6, problems=(DECODE,))
    executed(plan, recorded, tmp_path / "m.db")
    (original,) = [x for x in only(recorded, "triton_mm") if x.problem == DECODE]
    task = Task(DECODE, H200, "triton_mm")
    with Database.open(tmp_path / "m.db") as database:
        measured = {m.config: m for m in database.measurements(task)}
    landscape = landscape_from(task, registry.space("triton_mm"), original.points, measured)
    assert landscape.points == {config: original.points[config] for config in original.points if config in measured}
    assert landscape.context == original.context
    write_landscapes(tmp_path / "again.csv.gz", [landscape])
    (read,) = read_landscapes(tmp_path / "again.csv.gz")
    assert (read.points, read.problem, read.context) == (landscape.points, DECODE, original.context)


def test_dispatchers_without_a_vendor_library_run_their_spaces_alone():
    alone = outcome._spaces_run_alone({"aten"})
    assert {"cute_gemm", "quack_gemm"} <= alone
    assert "triton_mm" not in alone


def test_a_portfolio_is_chosen_where_the_plan_asks_for_one(recorded, tmp_path):
    plan = replace(PLAN, problems=(DECODE,), sampler="exhaustive", budget=400)
    own = executed(plan, recorded, tmp_path / "m.db")
    shared = executed(replace(plan, portfolio=LossLimits()), recorded, tmp_path / "m.db")
    assert own.portfolio is None
    (pick,) = shared.portfolio.picks
    assert (pick.problem, pick.config, pick.loss) == (DECODE, pick.own, 0.0)  # one problem keeps its own best
    assert shared.table == own.table
    vendor = executed(replace(plan, portfolio=LossLimits(), margin=0.2), recorded, tmp_path / "m.db")
    assert vendor.portfolio.picks == ()
    assert [row.choices[0].space for row in vendor.table.rows] == ["aten"]
    assert vendor.table.rows[0].loss == pytest.approx(vendor.table.rows[0].lead)
