"""A sampler is told the score of a success and the status of a failure."""

from __future__ import annotations

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status, Trial
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.tuner import trial_of
from gemmtune.engine.seams import registry

LATENCY = registry.objective("latency")
CONFIG = Config({"x": 1})


def measurement(status, estimate=None):
    return Measurement(
        task=Task(Problem.parse("16x4096x4096"), catalogue.device("H200"), "toy"),
        config=CONFIG,
        status=status,
        evidence=Evidence.MEASURED,
        protocol="p",
        toolchain=Toolchain(()),
        worker="w",
        created_at="2026-01-01T00:00:00+00:00",
        estimate=estimate,
    )


def test_a_success_has_its_score():
    assert trial_of(measurement(Status.OK, Estimate(5.0, 4.0, 6.0)), LATENCY) == Trial(CONFIG, Status.OK, 5.0)


def test_a_failure_has_no_score():
    assert trial_of(measurement(Status.BUILD_FAILED), LATENCY) == Trial(CONFIG, Status.BUILD_FAILED, None)
