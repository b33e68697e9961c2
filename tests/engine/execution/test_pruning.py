from __future__ import annotations

import pytest

from gemmtune.engine.execution.pruning import FailedBuild, build_result, pruning_reason
from gemmtune.engine.measure.builder import BuildFailure, BuildJob
from gemmtune.engine.processes.process_pool import Loss, Outcome
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.pruner import Candidate, Pruner

JOB = BuildJob(Task(Problem(64, 64, 64), catalogue.device("B200"), "toy"), Config({"x": 1}))


@pytest.mark.parametrize(
    ("outcome", "failed"),
    [
        (Outcome(JOB, BuildFailure("spills", 0.3)), FailedBuild(Status.BUILD_FAILED, "spills", 0.3)),
        (Outcome(JOB, None, Loss.DIED, "exit 9"), FailedBuild(Status.BUILD_FAILED, "build: exit 9", None)),
        (Outcome(JOB, None, Loss.TIMED_OUT, "after 60 s"), FailedBuild(Status.TIMED_OUT, "build: after 60 s", None)),
    ],
)
def test_a_build_without_an_artifact_has_its_status_and_reason(outcome, failed):
    assert build_result(outcome) == failed


def test_a_build_with_an_artifact_is_that_artifact():
    artifact = Artifact("key", "toy", "", "digest", (), None, 0.1, Toolchain(()))
    assert build_result(Outcome(JOB, artifact)) is artifact


class Keeps(Pruner):
    def judge(self, candidate, history):
        return Verdict.yes()


class Drops(Pruner):
    def judge(self, candidate, history):
        return Verdict.no("count", f"{len(history)} before it")


def test_the_first_pruner_that_says_no_is_named_with_its_reason():
    candidate = Candidate(JOB.task, JOB.config)
    assert pruning_reason({}, candidate, ()) == pruning_reason({"keeps": Keeps()}, candidate, ()) == ""
    assert (
        pruning_reason({"keeps": Keeps(), "drops": Drops(), "other": Drops()}, candidate, ())
        == "pruned by drops: 0 before it"
    )
