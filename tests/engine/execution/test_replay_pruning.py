"""Recorded measurements are pruned as they would have been measured: by config and by build."""

from __future__ import annotations

import pytest

from gemmtune.engine.execution.pruning import UNBUILT
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.pruner import Candidate, Pruner

TASK = Task(Problem(64, 64, 64), catalogue.device("H200"), "toy")


def landscape(*points: Point) -> Landscape:
    configs = {point.config: point for point in points}
    params = (Param("x", tuple(range(len(points)))),)
    return Landscape("toy", "toy.csv", params, configs, TASK.problem, {"protocol": "recorded", "device": "H200"})


def point(x: int, *samples_ns: float, spill: int = 0, status: Status = Status.OK) -> Point:
    time_ns = samples_ns[0] if status is Status.OK else None
    return Point(Config({"x": x}), status, time_ns, samples_ns, "", Resources(64, 0, spill, 128), 0.5)


def answers(pruners, *points):
    executor = ReplayExecutor([landscape(*points)], pruners)
    for recorded in points:
        executor.submit(TASK, recorded.config)
    return executor.collect(0.0)


class Watches(Pruner):
    """Keeps everything, and remembers what it was shown."""

    def __init__(self):
        self.seen: list[tuple[Candidate, int]] = []

    def judge(self, candidate, history):
        self.seen.append((candidate, len(history)))
        return Verdict.yes()


class DropsConfigs(Pruner):
    def judge(self, candidate, history):
        return Verdict.no("config", "before the build") if candidate.artifact is None else Verdict.yes()


def test_a_candidate_is_shown_alone_and_then_built():
    watches = Watches()
    kept = answers({"watches": watches}, point(0, 9.0, 8.0, 7.0), point(1, 5.0, 5.0))
    assert [m.status for m in kept] == [Status.OK, Status.OK]
    shown = [(c.config.integer("x"), c.artifact is not None, past) for c, past in watches.seen]
    assert shown == [
        (0, False, 0),
        (0, True, 0),
        (1, False, 1),
        (1, True, 1),
    ]
    assert watches.seen[1][0].artifact.resources == Resources(64, 0, 0, 128)


def test_without_pruners_and_with_one_that_keeps_the_answers_are_alike():
    points = (point(0, 9.0, 8.0), point(1, status=Status.RUN_FAILED), point(2, 5.0))
    assert answers({}, *points) == answers({"watches": Watches()}, *points)


def test_what_is_dropped_before_its_build_was_never_built():
    [found] = answers({"early": DropsConfigs()}, point(0, 9.0))
    assert (found.status, found.reason) == (Status.INVALID, "pruned by early: before the build")
    assert (found.protocol, found.resources, found.build_seconds) == (UNBUILT, None, None)
    assert (found.samples_ns, found.estimate) == ((), None)


def test_static_drops_by_the_recorded_spills_what_was_built_and_not_launched():
    [found] = answers({"static": registry.pruner("static")}, point(0, 9.0, spill=512))
    assert found.reason == "pruned by static: 512 B spilled per thread > 64 B"
    assert (found.protocol, found.build_seconds, found.samples_ns) == ("recorded", 0.5, ())


@pytest.mark.parametrize("status", [Status.BUILD_FAILED, Status.INVALID])
def test_what_was_never_built_is_shown_as_a_config_alone(status):
    watches = Watches()
    [found] = answers({"watches": watches}, point(0, status=status))
    assert found.status is status
    assert [candidate.artifact for candidate, _ in watches.seen] == [None]
