"""The transfer sampler searches well without a history, starts better with one, and overcomes a misleading one."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.search import Guess, Search, SourceTask, no_features, no_guess
from gemmtune.engine.search.encoding import Encoding
from gemmtune.engine.search.models import coordinates, transfer_model
from gemmtune.engine.search.models.coordinates import param_coordinates, scale_to_unit, weigh_coordinates
from gemmtune.engine.search.models.gaussian_process import GaussianProcess
from gemmtune.engine.search.models.transfer_model import predict_slowness
from gemmtune.engine.search.samplers.random import RandomSampler
from gemmtune.engine.search.samplers.transfer import TransferSampler
from gemmtune.engine.search.task_features import feature_matrix

TILES, STAGES, KINDS = (16, 32, 64, 128, 256), (1, 2, 3, 4, 5, 6), ("n", "t")
PARAMS = (Param("m", TILES), Param("n", TILES), Param("stages", STAGES), Param("kind", KINDS, ordered=False))
FEASIBLE = tuple(
    Config({"m": m, "n": n, "stages": s, "kind": k})
    for m, n, s, k in product(TILES, TILES, STAGES, KINDS)
    if (m + n) * s <= 1200
)


class Task:
    """A GEMM in caricature: the best tile has `rows` rows, twice as many columns, and 4 stages."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def time(self, config: Config) -> float:
        m, n, stages = (config.integer(name) for name in ("m", "n", "stages"))
        off = abs(math.log2(m / self.rows)) + abs(math.log2(n / self.rows / 2)) + abs(stages - 4) / 2
        return 1e4 * math.exp(0.2 * off + 0.1 * (config["kind"] == "n"))

    def trial(self, config: Config) -> Trial:
        fails = config.integer("stages") == 1
        return Trial(config, Status.BUILD_FAILED if fails else Status.OK, None if fails else self.time(config))

    def features(self, config: Config) -> dict[str, float]:
        m, n = config.integer("m"), config.integer("n")
        return {"rows": math.log2(m / self.rows), "columns": math.log2(n / self.rows)}

    def source(self) -> SourceTask:
        return SourceTask(tuple(self.trial(config) for config in FEASIBLE), self.features)

    def search(self, *history: SourceTask, seed: int = 0) -> Search:
        return Search(PARAMS, FEASIBLE, (), 32, seed, features=self.features, history=history)


def asked(sampler, task, count, batch=1):
    configs: list[Config] = []
    while len(configs) < count:
        those = sampler.ask(batch)
        sampler.tell([task.trial(config) for config in those])
        configs += those
    return configs


def best(configs, task):
    return min(score for score in (task.trial(config).score for config in configs) if score is not None)


def test_without_history_it_finds_the_optimum_where_random_search_does_not():
    task = Task(64)

    def found(sampler):
        return np.mean([1e4 / best(asked(sampler(task.search(seed=seed)), task, 16), task) for seed in range(6)])

    assert found(TransferSampler) > 0.95 > found(RandomSampler)


@pytest.mark.parametrize("batch", [1, 8])
def test_a_history_of_other_tasks_leads_to_the_optimum_within_eight_evaluations(batch):
    task = Task(64)
    search = task.search(Task(16).source(), Task(32).source(), Task(128).source())
    assert best(asked(TransferSampler(search), task, 8, batch), task) == 1e4


def test_with_a_history_every_fourth_proposal_is_a_seed_until_there_are_no_more():
    task = Task(64)
    seeds = tuple(Config({"m": 16, "n": 16, "stages": s, "kind": "n"}) for s in (2, 3, 5))  # slow ones
    found = asked(TransferSampler(replace(task.search(Task(32).source()), seeds=seeds)), task, 20)
    assert set(found[3:12:4]) == set(seeds)
    assert len(set(found)) == 20
    without = asked(TransferSampler(task.search(Task(32).source())), task, 20)
    assert found[:3] == without[:3]
    assert not set(seeds) & set(without)


def test_after_eight_proposals_promising_seeds_come_every_second_time():
    task = Task(64)
    seeds = tuple(Config({"m": m, "n": 128, "stages": s, "kind": "t"}) for m in (32, 64, 128) for s in (2, 3, 4))
    search = replace(task.search(Task(64).source()), seeds=seeds)
    search = replace(search, history=(replace(search.history[0], trials=tuple(map(Task(256).trial, FEASIBLE))),))
    found = asked(TransferSampler(search, more_seeds_after=8), task, 16)
    assert set(found[3::4]) <= set(seeds)
    assert found[9] in seeds
    assert found[:9] == asked(TransferSampler(search, more_seeds_after=100), task, 16)[:9]


def test_what_must_be_evaluated_first_comes_first_and_at_once_with_and_without_a_history():
    first = FEASIBLE[::20]
    for history in ((), (Task(32).source(),)):
        sampler = TransferSampler(replace(Task(64).search(*history), seeds=first, first=first))
        assert sampler.ask(64) == list(first)
        assert not set(sampler.ask(4)) & set(first)


def guessing(search, task):
    """Return a search without features, whose guess is the slowness on another task."""

    def guess(configs):
        return Guess(np.array([math.log(task.time(config)) for config in configs]), np.zeros((len(configs), 1)))

    return replace(search, features=no_features, guess=guess)


def test_a_search_without_a_history_begins_with_the_guess_behind_the_seeds():
    search = guessing(Task(64).search(), Task(64))
    [config] = TransferSampler(search).ask(1)
    assert Task(64).time(config) == 1e4
    seeded = TransferSampler(replace(search, seeds=FEASIBLE[:2]))
    assert [Task(64).time(config) == 1e4 for config in asked(seeded, Task(64), 3)] == [False, False, True]


def test_a_guess_that_misleads_is_overcome():
    found = asked(TransferSampler(guessing(Task(64).search(), Task(16))), Task(64), 32, batch=4)
    assert best(found, Task(64)) <= 1.05e4


def test_features_and_a_history_come_before_a_guess():
    history = SourceTask(tuple(Task(64).trial(config) for config in FEASIBLE[::4]))
    for search in (Task(64).search(), guessing(Task(64).search(history), Task(16))):
        plain = TransferSampler(replace(search, guess=no_guess))
        guided = TransferSampler(replace(search, guess=guessing(search, Task(16)).guess))
        assert asked(guided, Task(64), 8) == asked(plain, Task(64), 8)


def test_batches_are_small_for_the_first_32_proposals():
    task = Task(64)
    sampler = TransferSampler(task.search())
    assert [len(asked(sampler, task, 1, 8)) for _ in range(10)] == [4] * 8 + [8, 8]


def test_a_long_search_alternates_with_evolution_and_asks_nothing_twice():
    task = Task(64)
    both = asked(TransferSampler(task.search()), task, len(FEASIBLE), batch=8)
    assert len(set(both)) == len(FEASIBLE)
    alone = asked(TransferSampler(task.search(), evolution_after=len(FEASIBLE)), task, len(FEASIBLE), batch=8)
    assert both[:65] == alone[:65]
    assert both[65] != alone[65]


def test_of_many_source_tasks_the_nearest_in_size_are_used(monkeypatch):
    monkeypatch.setattr(transfer_model, "_MAX_TASKS", 2)
    task = Task(64)

    def sized(source, size):
        return SourceTask(source.trials, lambda config: {**source.features(config), "problem n": size})

    near = [sized(Task(32).source(), 9.0), sized(Task(128).source(), 11.0)]
    misleading = SourceTask(
        tuple(Trial(t.config, t.status, t.score and 1e9 / t.score) for t in Task(64).source().trials)
    )
    far = [sized(replace(misleading, features=task.features), 20.0)] * 3
    search = replace(task.search(), features=sized(task.source(), 10.0).features)
    known = feature_matrix(search.features, FEASIBLE)
    among_others = predict_slowness(replace(search, history=(*far, *near)), known)
    assert among_others == pytest.approx(predict_slowness(replace(search, history=tuple(near)), known))


def test_a_parameter_weighs_little_where_the_features_explain_it_and_fully_where_they_do_not():
    params = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    weighed = weigh_coordinates(params, params[:, :1])
    assert np.ptp(weighed, axis=0).tolist() == [coordinates._PARAM_WEIGHT, 1.0, coordinates._FEATURE_WEIGHT]
    assert weigh_coordinates(params, np.empty((4, 0))).tolist() == params.tolist()


def test_configs_that_failed_on_other_tasks_are_avoided():
    task = Task(64)
    configs = asked(TransferSampler(task.search(Task(32).source(), Task(128).source())), task, 16)
    assert sum(config["stages"] == 1 for config in configs) <= 1  # of 60 among 262; one in four ignores the history


def test_there_is_no_prediction_where_a_feature_has_a_value_that_no_source_task_had():
    task = Task(64)
    sources = [
        SourceTask(source.trials, aligned(source.features, 16.0)) for source in (Task(32).source(), Task(128).source())
    ]
    known = {alignment: feature_matrix(aligned(task.features, alignment), FEASIBLE) for alignment in (8.0, 16.0)}

    def predicted(alignment):
        search = replace(task.search(*sources), features=aligned(task.features, alignment))
        return predict_slowness(search, known[alignment]) is not None

    assert predicted(16.0)
    assert not predicted(8.0)


def aligned(features, alignment):
    return lambda config: {**features(config), "alignment": alignment}


def test_a_history_that_misleads_is_overcome():
    task = Task(32)
    source = task.source()
    upside_down = [Trial(t.config, t.status, t.score and 1e9 / t.score) for t in source.trials]
    search = task.search(SourceTask(tuple(upside_down), source.features))
    assert best(asked(TransferSampler(search), task, 32), task) < 1.1e4


def test_the_same_history_gives_the_same_proposals_in_another_process():
    script = f"""if True:
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from {Path(__file__).stem} import sequence
        print("\\n".join(sequence()))
        """
    environment = {**os.environ, "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    printed = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert printed.stdout.splitlines() == sequence()


def sequence():
    task = Task(64)
    search = task.search(Task(16).source(), Task(128).source(), seed=11)
    return [config.json for config in asked(TransferSampler(search), task, 20, batch=4)]


def test_there_is_no_prediction_without_enough_successful_trials():
    task = Task(64)
    known = feature_matrix(task.features, FEASIBLE)
    failures = tuple(Trial(config, Status.RUN_FAILED, None) for config in FEASIBLE)
    assert predict_slowness(task.search(), known) is None
    assert predict_slowness(task.search(SourceTask(failures, task.features)), known) is None
    assert predict_slowness(task.search(replace(task.source(), trials=task.source().trials[:3])), known) is None


def test_the_prediction_ranks_configs_by_their_times(monkeypatch):
    monkeypatch.setattr(transfer_model, "_MAX_TRIALS", 400)
    task = Task(64)
    search = task.search(Task(16).source(), Task(32).source(), Task(128).source())
    expected = predict_slowness(search, feature_matrix(task.features, FEASIBLE))
    works = [i for i, config in enumerate(FEASIBLE) if config["stages"] != 1]
    real = np.log([task.time(FEASIBLE[i]) for i in works])
    assert np.corrcoef(expected[works], real)[0, 1] > 0.8
    assert np.delete(expected, works).min() > np.median(expected[works])


def test_coordinates_lie_in_a_unit_cube_and_drop_constant_columns():
    params = (Param("x", (8, 16, 24, 32)), Param("one", (1,)), Param("kind", ("a", "b", "c"), ordered=False))
    configs = [Config({"x": x, "one": 1, "kind": k}) for x in (8, 16, 24, 32) for k in "abc"]
    points = param_coordinates(Encoding(params, configs))
    assert points.shape == (12, 5)  # level and twos of x, three kinds
    assert sorted(set(points[:, 0])) == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert [points[i * 3, 1] for i in range(4)] == [0, 0.5, 0, 1]  # 8, 16, 24, 32
    assert scale_to_unit(np.array([[3.0, 1.0], [5.0, 1.0]])).tolist() == [[0.0], [1.0]]


def test_a_process_is_certain_near_its_outcomes_and_uncertain_elsewhere():
    line = np.linspace(0, 1, 41)[:, None]
    truth = np.sin(5 * line[:, 0])
    process = GaussianProcess(line, [np.zeros(41)])
    for position in (0, 8, 16, 24, 32, 40):
        process.add(position)
    process.tell(list(truth[[0, 8, 16, 24, 32, 40]]))
    mean, deviation = process._posterior(0)
    assert mean == pytest.approx(truth - truth[[0, 8, 16, 24, 32, 40]].min(), abs=0.1)
    assert deviation[8] < deviation[4] / 3
    assert int(np.argmax(process.improvement(0))) in range(32, 41)  # the minimum is at 38


def test_a_config_in_flight_has_little_expected_improvement_left():
    line = np.linspace(0, 1, 41)[:, None]
    process = GaussianProcess(line, [np.zeros(41)])
    for position in (0, 10, 20, 30):
        process.add(position)
    process.tell([0.3, 0.1, 0.0, 0.1])
    before = process.improvement(0)
    first = int(np.argmax(before))
    process.add(first)
    assert process.improvement(0)[first] < 0.1 * before[first]


def test_rows_added_one_by_one_equal_rows_computed_at_once():
    points = np.random.default_rng(0).random((60, 3))
    one = GaussianProcess(points, [np.zeros(60)])
    for position in range(10):
        one.add(position)
    one.tell(list(points[:10].sum(axis=1)))
    for position in range(10, 13):
        one.add(position)
    grown = one._explained.copy()
    one._condition(list(range(13)))
    assert one._explained == pytest.approx(grown, abs=1e-9)
