"""Trials of other tasks of a space without config features tell where a task's fast configs are."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.search import Search, SourceTask
from gemmtune.engine.search.models.joint_process import JointProcess
from gemmtune.engine.search.samplers.transfer import TransferSampler

TILES, STAGES = (16, 32, 64, 128, 256), (1, 2, 3, 4, 5, 6)
PARAMS = (Param("rows", TILES), Param("columns", TILES), Param("stages", STAGES))
FEASIBLE = tuple(Config({"rows": r, "columns": c, "stages": s}) for r, c, s in product(TILES, TILES, STAGES))


class Task:
    """A kernel whose best tile has `rows` rows, twice as many columns, and 4 stages, at a level of its own."""

    def __init__(self, rows: int, level: float = 1e4) -> None:
        self.rows, self.level = rows, level

    def trial(self, config: Config) -> Trial:
        rows, columns, stages = (config.integer(name) for name in ("rows", "columns", "stages"))
        if stages == 1:
            return Trial(config, Status.BUILD_FAILED, None)
        off = abs(math.log2(rows / self.rows)) + abs(math.log2(columns / self.rows / 2)) + abs(stages - 4) / 2
        return Trial(config, Status.OK, self.level * math.exp(0.2 * off))

    def features(self, config: Config) -> dict[str, float]:
        return {"problem size": math.log2(self.rows), "kind": 1.0}

    def source(self, count: int) -> SourceTask:
        drawn = np.random.default_rng(self.rows).permutation(len(FEASIBLE))[:count]
        return SourceTask(tuple(self.trial(FEASIBLE[i]) for i in drawn), self.features)

    def search(self, *history: SourceTask, seed: int = 0) -> Search:
        return Search(PARAMS, FEASIBLE, (), 32, seed, features=self.features, history=history)


def slowness(configs, task):
    return min(trial.score for trial in map(task.trial, configs) if trial.score is not None) / task.level


def asked(sampler, task, count):
    found: list[Config] = []
    while len(found) < count:
        batch = sampler.ask(1)
        sampler.tell([task.trial(config) for config in batch])
        found += batch
    return found


def test_expected_order_follows_the_other_tasks_whatever_their_level():
    history = Task(32, level=50.0).source(30), Task(128, level=7e8).source(30)
    process = JointProcess.of(Task(64).search(*history))
    assert process is not None
    expected = -process.improvement()
    times = np.array([task.score or math.nan for task in map(Task(64).trial, FEASIBLE)])
    works = np.isfinite(times)
    assert np.corrcoef(expected[works], np.log(times[works]))[0, 1] > 0.8


def test_a_first_batch_spreads_before_this_task_has_any_outcome():
    process = JointProcess.of(Task(64).search(Task(32).source(30)))
    before = process.improvement()
    first = int(before.argmax())
    process.add(first)
    fell = before - process.improvement()
    assert fell.argmax() == first
    far = [i for i, config in enumerate(FEASIBLE) if config["rows"] == 256 and config["stages"] == 6]
    assert fell[first] > 1.05 * fell[far].max()


def test_a_batch_spreads_before_its_outcomes_are_known():
    process = JointProcess.of(Task(64).search(Task(32).source(30)))
    process.add(0)
    process.tell([math.log(2e4)])
    first = process.improvement()
    process.add(int(first.argmax()))
    assert process.improvement()[first.argmax()] < 0.8 * first.max()


def test_a_refit_keeps_the_shape_of_what_is_predicted():
    task = Task(64)
    process = JointProcess.of(task.search(Task(32).source(30)))
    for position in range(0, 140, 7):  # past two refits
        process.add(position)
        trial = task.trial(FEASIBLE[position])
        process.tell([math.nan if trial.score is None else math.log(trial.score)])
    assert process.improvement().shape == (len(FEASIBLE),)


@pytest.mark.parametrize("count", [0, 3])
def test_tasks_with_few_trials_do_not_count(count):
    assert JointProcess.of(Task(64).search(Task(32).source(count))) is None


def test_tasks_with_other_features_do_not_count():
    source = SourceTask(Task(32).source(30).trials, lambda config: {"problem length": 1.0})
    assert JointProcess.of(Task(64).search(source)) is None


def test_a_fact_that_no_other_task_had_leaves_no_history():
    source = SourceTask(Task(32).source(30).trials, lambda config: {"problem size": 5.0, "kind": 2.0})
    assert JointProcess.of(Task(64).search(source)) is None
    assert JointProcess.of(Task(64).search(source, Task(32).source(30))) is not None


def test_few_trials_of_each_of_three_tasks_lead_a_search_of_another_size():
    task = Task(128)
    history = [Task(rows).source(16) for rows in (16, 32, 64)]
    warm = np.mean([slowness(asked(TransferSampler(task.search(*history, seed=s)), task, 4), task) for s in range(3)])
    cold = np.mean([slowness(asked(TransferSampler(task.search(seed=s)), task, 4), task) for s in range(3)])
    assert warm < 1.3 < cold


def test_the_joint_process_ends_where_evolution_begins():
    task = Task(128)
    sampler = TransferSampler(task.search(Task(32).source(30)), evolution_after=8)
    asked(sampler, task, 8)
    assert sampler._joint is not None
    asked(sampler, task, 1)
    assert sampler._joint is None


def test_sources_may_have_values_that_the_task_lacks():
    task = Task(64)
    feasible = tuple(config for config in FEASIBLE if config["rows"] != 16)
    search = Search(PARAMS, feasible, (), 32, 0, features=task.features, history=(Task(32).source(40),))
    process = JointProcess.of(search)
    assert process is not None
    assert process.improvement().shape == (len(feasible),)


class Waves:
    """A GEMM kernel whose time is the number of waves of its tiles on a GPU of `sms` multiprocessors, times a tile."""

    def __init__(self, m: int, n: int, sms: int = 100) -> None:
        self.m, self.n, self.sms = m, n, sms

    def trial(self, config: Config) -> Trial:
        rows, columns, stages = (config.integer(name) for name in ("rows", "columns", "stages"))
        waves = math.ceil(math.ceil(self.m / rows) * math.ceil(self.n / columns) / self.sms)
        return Trial(config, Status.OK, waves * rows * columns * (1 + abs(stages - 4)))

    def features(self, config: Config) -> dict[str, float]:
        return {"problem m": math.log2(self.m), "problem n": math.log2(self.n), "SMs": math.log2(self.sms)}

    def source(self, count: int) -> SourceTask:
        drawn = np.random.default_rng(self.m + self.n).permutation(len(FEASIBLE))[:count]
        return SourceTask(tuple(self.trial(FEASIBLE[i]) for i in drawn), self.features)


@pytest.mark.parametrize("sms", [60, 100])
def test_waves_of_tiles_are_expected_on_a_size_that_no_other_task_had(sms):
    task = Waves(1024, 1280, sms)
    history = [Waves(m, n, sms).source(16) for m, n in ((4096, 1024), (512, 640), (2048, 3000), (256, 5120))]
    search = Search(PARAMS, FEASIBLE, (), 32, 0, features=task.features, history=tuple(history))
    process = JointProcess.of(search)
    assert process is not None
    times = np.array([task.trial(config).score for config in FEASIBLE])
    assert np.corrcoef(-process.improvement(), np.log(times))[0, 1] > 0.98


def test_params_that_are_no_sides_of_tiles_are_left_out():
    configs = [Config({"rows": r, "fast": f, "stages": s}) for r, f, s in product((16, 32), (True, False), (1, 2))]
    search = Search(
        (Param("rows", (16, 32)), Param("fast", (False, True)), Param("stages", (1, 2))),
        tuple(configs),
        (),
        8,
        0,
        features=Waves(64, 64).features,
        history=(SourceTask(tuple(Trial(c, Status.OK, 1.0) for c in configs), Waves(64, 32).features),),
    )
    process = JointProcess.of(search)
    assert process is not None
    assert process.improvement().shape == (8,)
