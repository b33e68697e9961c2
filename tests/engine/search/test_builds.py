"""What compilers made of configs elsewhere is expected here, and tells a search where its own spills lie."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.search import Past, Search
from gemmtune.engine.scheduling.landscape_search import RecordedTask
from gemmtune.engine.search.models.builds import builds
from gemmtune.engine.search.models.coordinates import described
from gemmtune.engine.search.models.transfer_model import lesson
from gemmtune.engine.search.samplers.transfer import TransferSampler
from gemmtune.engine.store.landscapes.embedded import embedded
from gemmtune.engine.store.landscapes.landscape_file import read_landscapes

from .another_process import sequence_elsewhere

LEVELS = range(8)
PARAMS = (Param("x", tuple(LEVELS)), Param("y", tuple(LEVELS)), Param("z", tuple(LEVELS)))
FEASIBLE = tuple(Config({"x": x, "y": y, "z": z}) for x, y, z in product(LEVELS, LEVELS, LEVELS))


class Task:
    """A bowl; and a compiler that spills three configs of four, in a pattern that no parameter shows by itself.

    What a spill costs is the task's own: nothing where memory is the limit.
    """

    def __init__(self, centre: int, cost: float, *, told: bool = True) -> None:
        self.centre, self.cost, self.told = centre, cost, told

    def trial(self, config: Config) -> Trial:
        x, y, z = (config.integer(name) for name in "xyz")
        spills = (2 * x + 3 * y + 5 * z) % 4 > 0
        off = abs(x - self.centre) + abs(y - self.centre) + abs(z - self.centre)
        resources = Resources(255 if spills else 64 + 8 * x, 0, 128 if spills else 0, 128)
        score = 1e4 * 1.1**off * (self.cost if spills else 1)
        return Trial(config, Status.OK, score, resources=resources if self.told else None)

    def describe(self, config: Config) -> dict[str, float]:
        return {"off": float(abs(config.integer("x") - self.centre))}

    def past(self) -> Past:
        return Past(tuple(map(self.trial, FEASIBLE)), self.describe)

    def search(self, *history: Past, seed: int = 0) -> Search:
        return Search(PARAMS, FEASIBLE, (), 32, seed, describe=self.describe, history=history)


def asked(sampler, task, count):
    configs: list[Config] = []
    while len(configs) < count:
        those = sampler.ask(4)
        sampler.tell([task.trial(config) for config in those])
        configs += those
    return configs


def fraction(task, configs):
    return min(task.trial(c).score for c in FEASIBLE) / min(task.trial(c).score for c in configs)


def test_where_spills_decide_here_and_did_not_elsewhere_the_builds_of_elsewhere_help():
    def found(told):
        here, *others = Task(5, 3.0, told=told), Task(2, 1.0, told=told), Task(4, 1.0, told=told)
        pasts = [other.past() for other in others]
        runs = [asked(TransferSampler(here.search(*pasts, seed=seed)), here, 8) for seed in range(6)]
        return np.mean([fraction(here, configs) for configs in runs])

    assert found(told=True) > found(told=False) + 0.1


def test_what_tasks_of_one_campaign_built_is_learned_on_the_way():
    def sequence(told):
        here = Task(5, 3.0, told=told)
        sampler = TransferSampler(here.search())
        configs = asked(sampler, here, 8)
        others = [replace(task.past(), trials=task.past().trials[::9]) for task in (Task(2, 1.0), Task(4, 1.0))]
        sampler.learn(others if told else [unbuilt(past) for past in others])
        return [*configs, *asked(sampler, here, 8)]

    assert sequence(True)[:8] == sequence(False)[:8]
    assert sequence(True)[8:] != sequence(False)[8:]


def unbuilt(past):
    return replace(past, trials=tuple(replace(trial, resources=None) for trial in past.trials))


def test_without_a_history_what_was_built_changes_no_proposal():
    told, untold = Task(5, 3.0), Task(5, 3.0, told=False)
    assert asked(TransferSampler(told.search()), told, 24) == asked(TransferSampler(untold.search()), untold, 24)


def test_a_history_without_builds_adds_no_columns():
    task = Task(5, 3.0, told=False)
    taught = lesson(task.search(Task(2, 1.0, told=False).past()), described(task.describe, FEASIBLE))
    assert taught is not None
    assert taught.builds.shape == (len(FEASIBLE), 0)


def test_a_config_built_here_is_as_it_was_recorded_and_not_as_expected():
    task = Task(5, 3.0)
    own = Trial(FEASIBLE[7], Status.RUN_FAILED, None, resources=Resources(31, 0, 4095, 128))
    search, known = task.search(Task(2, 1.0).past()), described(task.describe, FEASIBLE)
    before, after = (lesson(search, known, told).builds[7].tolist() for told in ((), (own,)))
    assert after == pytest.approx([5.0, 12.0])  # log2 of 1 + 31 registers and of 1 + 4095 bytes
    assert before != pytest.approx(after)


def test_failures_that_were_built_teach_as_others_do():
    task, past = Task(5, 3.0), Task(2, 1.0).past()
    failures = [replace(trial, status=Status.RUN_FAILED, score=None) for trial in past.trials[1:]]
    known = described(task.describe, FEASIBLE)
    of_failures, of_all = (
        lesson(task.search(replace(past, trials=trials)), known).builds
        for trials in ((past.trials[0], *failures), past.trials)
    )
    assert np.abs(of_failures - of_all).mean() < 0.5


def test_too_few_builds_teach_nothing():
    resources = [Resources(32, 0, 0, 128)] * 7
    assert builds(np.arange(20.0)[:, None], [*resources, *[None] * 13], 0).shape == (20, 0)
    assert builds(np.arange(20.0)[:, None], [*resources, *resources, *[None] * 6], 0).shape == (20, 2)


@pytest.fixture(scope="module")
def recorded():
    landscapes = [landscape for file in embedded("triton_mm") for landscape in read_landscapes(file)]
    return {landscape.name: RecordedTask(landscape) for landscape in landscapes}


@pytest.mark.parametrize("left_out", ["16x28672x4096:bf16:nt", "512x4096x14336:bf16:nt", "2048x4096x4096:bf16:nt"])
def test_registers_of_a_recorded_problem_are_expected_from_the_others(left_out, recorded):
    task = recorded[left_out]
    others = [other for name, other in recorded.items() if name != left_out]
    pasts = tuple(other.past([other.outcome(config) for config in other.feasible]) for other in others)
    search = Search(task.landscape.params, task.feasible, (), 32, 0, describe=task.describe, history=pasts)
    taught = lesson(search, described(task.describe, task.feasible))
    found = [task.outcome(config).resources for config in task.feasible]
    registers = np.log2([1 + resources.registers for resources in found])
    spills = np.array([resources.spill_bytes > 0 for resources in found])
    assert np.median(np.abs(taught.builds[:, 0] - registers)) < 0.15  # 11 %; 5 to 9 % were seen
    assert np.corrcoef(taught.builds[:, 0], registers)[0, 1] > 0.9
    assert taught.builds[spills, 1].mean() > 5 * taught.builds[~spills, 1].mean()


def test_the_same_builds_teach_the_same_in_another_process():
    assert sequence_elsewhere(__file__) == sequence()


def sequence():
    task = Task(5, 3.0)
    search = task.search(Task(2, 1.0).past(), Task(4, 1.0).past(), seed=11)
    return [config.json for config in asked(TransferSampler(search), task, 20)]
