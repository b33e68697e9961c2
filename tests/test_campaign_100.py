"""The campaign of a hundred problems: what was drawn, and how its table is judged."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmtune.engine.campaign.plan_file import read_plan
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Estimate, Status
from gemmtune.engine.records.task import Task

HERE = Path(__file__).parents[1] / "experiments" / "campaign-100"
START = datetime(2026, 11, 22, tzinfo=UTC).timestamp()
TASK = Task(Problem.parse("16x4096x4096:bf16:nt"), catalogue.device("H200"), "triton_mm")


@pytest.fixture(scope="module")
def experiment(modules_of):
    return modules_of("campaign-100", "choose", "rehearsal", "judge", "truth")


def test_campaign_file_is_what_the_rule_draws(experiment):
    drawn = experiment.choose.problems()
    assert (HERE / "campaign.toml").read_text() == experiment.choose.campaign_text(drawn)
    plan = read_plan(HERE / "campaign.toml")
    assert [problem.name for problem in plan.problems] == [c.name for c in drawn]
    assert plan.spaces == ("triton_mm",)


def test_hundred_problems_cover_models_layers_degrees_and_sizes(experiment):
    drawn = experiment.choose.problems()
    assert len({c.name for c in drawn}) == len(drawn) == 100
    assert len({c.shape.model for c in drawn}) >= 6
    assert {c.shape.kind for c in drawn} == {"qkv", "o", "gate_up", "down"}
    assert len({c.shape.degree for c in drawn}) == 2
    assert {c.m for c in drawn} == {2**power for power in range(14)}
    assert {(c.shape.n, c.shape.k) for c in drawn} <= {(s.n, s.k) for s in experiment.choose.shapes()}


def test_truths_are_twelve_of_the_hundred_from_every_range_and_layer(experiment):
    drawn = experiment.choose.truths()
    assert len(set(drawn)) == 12
    assert set(drawn) <= set(experiment.choose.problems())
    assert {c.range for c in drawn} == {"decode", "medium", "prefill"}
    assert {c.shape.kind for c in drawn} == {"qkv", "o", "gate_up", "down"}
    assert len({c.shape.model for c in drawn}) >= 6


def test_of_the_optimum_is_what_the_sweep_says_of_the_first_choice_of_triton(experiment):
    def row(*choices):
        return SimpleNamespace(choices=[SimpleNamespace(space=space, config=Config(c)) for space, c in choices])

    points = {Config({"a": a}): SimpleNamespace(time_ns=time_ns) for a, time_ns in ((1, 80.0), (2, 100.0), (3, None))}
    truth = SimpleNamespace(points=points, optimum_ns=80.0)
    of_optimum = experiment.judge.of_optimum
    assert of_optimum(row(("aten", {}), ("triton_mm", {"a": 2}), ("triton_mm", {"a": 1})), truth) == 0.8
    assert of_optimum(row(("triton_mm", {"a": 3})), truth) == 0.0
    assert of_optimum(row(("aten", {})), truth) == 0.0
    assert of_optimum(row(("triton_mm", {"a": 2})), None) is None


def test_another_space_is_told_by_its_best_beside_that_of_triton(experiment):
    row = {"range": "decode", "baseline_us": 10.0, "best_us": 8.0, "triton_us": 8.0, "of_optimum": None}
    rows = [row | {"others_us": {"cute": 12.0}}, row | {"others_us": {"cute": 6.0}}, row | {"others_us": {}}]
    assert experiment.judge.result_lines(rows) == [
        "decode: ATen over best 1.2500 (geo. mean)",
        "  best of cute over the best of triton_mm: 1.0607 (0.7500 to 1.5000, 2 problems)",
    ]


def test_a_campaign_that_was_cut_off_before_its_table_is_judged_without_one(modules_of, tmp_path):
    run = modules_of("campaign-100", "choose", "rehearsal", "judge", "run").run
    found = {}
    run.judge_table(tmp_path / "campaign", found, {})
    assert found == {"problems": []}


def test_finalists_are_ranked_by_the_final_on_the_level_of_their_measurements(experiment):
    def at(time_ns):
        return SimpleNamespace(status=Status.OK, estimate=Estimate(time_ns, time_ns, time_ns))

    one, other = Config({"a": 1}), Config({"a": 2})
    final = SimpleNamespace(
        finalists=[
            SimpleNamespace(task=TASK, config=c, estimate=at(t).estimate) for c, t in ((one, 9.0), (other, 16.0))
        ]
    )
    times = experiment.truth.final_times({one: at(12.0), other: at(12.0)}, final)
    assert times == {one: pytest.approx(9.0), other: pytest.approx(16.0)}
    assert experiment.truth.final_times({one: at(24.0), other: at(24.0)}, final)[one] == pytest.approx(18.0)


def test_a_choice_is_judged_by_the_final_in_which_it_meets_the_best_of_the_sweep(modules_of):
    pytest.importorskip("torch")
    pytest.importorskip("cuda.bindings")
    meet = modules_of("campaign-100", "rehearsal", "meet").meet
    chosen, other = Config({"BLOCK_M": 64}), Config({"BLOCK_M": 128})
    settled = [
        SimpleNamespace(number=number, estimate=Estimate(us * 1e3, us * 990, us * 1010), behind=behind)
        for number, us, behind in ((1, 9.5, (0.0, 0.0)), (0, 10.0, (0.04, 0.06)))
    ]
    assert meet.standing((chosen, other), settled) == {
        "chosen_us": 10.0,
        "best_us": 9.5,
        "of_optimum": 0.95,
        "behind": [0.04, 0.06],
        "best": {"BLOCK_M": 128},
    }
    assert meet.standing((chosen, other), settled[:1]) == {"of_optimum": 0.0}
