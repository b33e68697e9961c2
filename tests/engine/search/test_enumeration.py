from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.engine.search import enumeration
from gemmtune.engine.search.enumeration import (
    DrawnConfigs,
    enumerate_space,
    feasible_configs,
    membership,
    possible_evaluations,
    searched_configs,
)
from gemmtune.engine.search.samplers.evolution import EvolutionSampler

DEVICE = Device("TOY", "Toy", "sm_90a", 1, 1000, 1000, 1, 1, 1, 1, 32, 1, 1)
TASK = Task(Problem(m=64, n=64, k=64), DEVICE, "toy")


class ToySpace(Space):
    def __init__(self, tiles: int = 4, stages: int = 3) -> None:
        self.tiles, self.stages = tiles, stages

    def params(self, task: Task) -> tuple[Param, ...]:
        return (Param("tile", tuple(range(1, self.tiles + 1))), Param("stages", tuple(range(1, self.stages + 1))))

    def check(self, task: Task, config: Config) -> Verdict:
        tile, stages = config.integer("tile"), config.integer("stages")
        if tile * stages > 6:
            return Verdict.no("shared memory", f"{tile * stages} B > 6 B")
        if tile == 3:
            return Verdict.no("divisible", f"64 is not a multiple of {tile}")
        return Verdict.yes()

    def seeds(self, task: Task) -> tuple[Config, ...]:
        return ()

    def toolchain(self) -> Toolchain:
        return Toolchain(())

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        raise NotImplementedError

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        raise NotImplementedError


class EmptySpace(ToySpace):
    def points(self, task: Task) -> Iterator[Config]:
        return iter(())


def test_enumeration_counts_every_point_once():
    found = enumerate_space(ToySpace(), TASK)
    assert found.points == 12
    assert len(found.feasible) + sum(found.rejections.values()) == found.points
    assert found.rejections == {"divisible": 2, "shared memory": 3}


def test_feasible_configs_keep_the_order_of_the_points():
    found = enumerate_space(ToySpace(), TASK)
    assert [(c["tile"], c["stages"]) for c in found.feasible] == [
        (1, 1),
        (1, 2),
        (1, 3),
        (2, 1),
        (2, 2),
        (2, 3),
        (4, 1),
    ]


def test_enumeration_has_the_first_reason_of_each_rule():
    assert enumerate_space(ToySpace(), TASK).examples == {
        "divisible": "64 is not a multiple of 3",
        "shared memory": "9 B > 6 B",
    }


def test_an_empty_space_has_no_points_and_no_rejections():
    found = enumerate_space(EmptySpace(), TASK)
    assert (found.points, found.feasible, found.rejections, found.examples) == (0, (), {}, {})


def test_enumeration_counts_each_of_ten_thousand_points_once():
    found = enumerate_space(ToySpace(tiles=100, stages=100), TASK)
    assert found.points == 10_000 == len(found.feasible) + sum(found.rejections.values())


def test_feasible_configs_are_those_that_the_enumeration_accepts():
    assert tuple(feasible_configs(ToySpace(), TASK)) == enumerate_space(ToySpace(), TASK).feasible


def test_a_space_of_other_workloads_has_no_points_and_says_why():
    class Other(ToySpace):
        workload = "moe"

    found = enumerate_space(Other(), TASK)
    assert (found.points, found.feasible) == (0, ())
    reason = "toy serves workloads of kind moe, not gemm"
    assert (found.rejections, found.examples) == ({}, {"workload": reason})
    assert list(feasible_configs(Other(), TASK)) == []


@pytest.mark.parametrize(
    ("values", "rule", "reason"),
    [
        ({"tile": 2, "stages": 3}, "", ""),
        ({"tile": 2, "stages": 4}, "values", "stages=4 is not a value of toy"),
        ({"tile": 2.0, "stages": 3}, "values", "tile=2.0 is not a value of toy"),
        ({"tile": 2}, "params", "param stages is missing"),
        ({"tile": 2, "stages": 3, "warps": 4}, "params", "param warps is unknown"),
        ({"tile": 4, "stages": 2}, "shared memory", "8 B > 6 B"),
    ],
)
def test_a_config_from_a_file_has_the_params_and_values_of_its_space(values, rule, reason):
    verdict = membership(ToySpace(), TASK)(Config(values))
    assert (verdict.rule, verdict.reason) == (rule, reason)


def test_a_search_of_a_large_space_draws_what_it_may_ask():
    class Wide(ToySpace):
        def check(self, task: Task, config: Config) -> Verdict:
            return Verdict.yes() if config["tile"] % 2 else Verdict.no("odd", "an even tile")

        def seeds(self, task: Task) -> tuple[Config, ...]:
            return (Config({"tile": 7, "stages": 9}), Config({"tile": 8, "stages": 9}))

    drawn = tuple(searched_configs(Wide(tiles=10**4, stages=2000), TASK, budget=8, seed=3))
    assert drawn[0] == Config({"tile": 7, "stages": 9}) != drawn[1]
    assert drawn == tuple(searched_configs(Wide(tiles=10**4, stages=2000), TASK, budget=8, seed=3))
    assert 8 < len(set(drawn)) == len(drawn) < 20_000
    assert all(config["tile"] % 2 for config in drawn)
    assert tuple(searched_configs(ToySpace(), TASK, budget=8, seed=3)) == tuple(feasible_configs(ToySpace(), TASK))


def test_a_large_space_is_counted_and_described_by_what_is_drawn(monkeypatch):
    class Sparse(ToySpace):
        def check(self, task: Task, config: Config) -> Verdict:
            return Verdict.yes() if config["tile"] == 900 else Verdict.no("tile", "not 900")

    space = Sparse(tiles=1000, stages=1000)
    monkeypatch.setattr(enumeration, "MOST_ENUMERATED", 9000)
    monkeypatch.setattr(enumeration, "_DRAWN", 500)
    drawn = searched_configs(space, TASK, budget=64, seed=3)
    assert isinstance(drawn, DrawnConfigs)
    assert 0 < len(drawn) < 64  # as many as 9,000 draws bring
    assert 500 < drawn.size < 2000  # 1,000 are feasible
    assert possible_evaluations(space, TASK, budget=64, seed=3) == len(drawn)
    assert possible_evaluations(space, TASK, budget=2, seed=3) == 2
    assert possible_evaluations(ToySpace(), TASK, budget=64, seed=3) == 7
    found = enumerate_space(space, TASK)
    assert (found.points, found.size, found.examples) == (500, 10**6, {"tile": "not 900"})
    assert len(found.feasible) + sum(found.rejections.values()) == found.points


def test_a_campaign_asks_for_feasible_configs_beyond_those_drawn(monkeypatch):
    monkeypatch.setattr(enumeration, "MOST_ENUMERATED", 1000)
    monkeypatch.setattr(enumeration, "_DRAWN", 60)

    class Odd(ToySpace):
        def check(self, task: Task, config: Config) -> Verdict:
            return Verdict.yes() if config["tile"] % 2 else Verdict.no("odd", "an even tile")

    space = Odd(tiles=1000, stages=1000)
    drawn = searched_configs(space, TASK, budget=30, seed=3)
    search = TaskSearch(TASK, space, lambda: drawn, EvolutionSampler, budget=30, seed=3, batch=10)
    while batch := search.next_batch():
        search.tell([Trial(config, Status.OK, float(config["tile"])) for config in batch])
    asked = [trial.config for trial in search.trials]
    assert len(set(asked)) == 30
    assert set(asked) - set(drawn)
    assert all(config["tile"] % 2 for config in asked)
