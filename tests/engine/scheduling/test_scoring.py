"""A sampler is told the score, and what the build occupied: of failures, too."""

from __future__ import annotations

from dataclasses import replace

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status, Trial
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.scoring import trial_of
from gemmtune.engine.seams import registry

LATENCY = registry.objective("latency")
CONFIG = Config({"x": 1})
SPILLING = Resources(registers=255, shared_bytes=0, spill_bytes=64, threads=128)


def measurement(status, estimate=None, resources=None):
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
        resources=resources,
    )


def test_a_success_has_its_score_and_its_resources():
    found = measurement(Status.OK, Estimate(5.0, 4.0, 6.0), SPILLING)
    assert trial_of(found, LATENCY) == Trial(CONFIG, Status.OK, 5.0, resources=SPILLING)


def test_a_failure_that_was_built_has_its_resources():
    found = measurement(Status.RUN_FAILED, resources=SPILLING)
    assert trial_of(found, LATENCY) == Trial(CONFIG, Status.RUN_FAILED, None, resources=SPILLING)


def test_what_was_not_built_has_none():
    assert trial_of(measurement(Status.BUILD_FAILED), LATENCY) == Trial(CONFIG, Status.BUILD_FAILED, None)


def test_trials_of_equal_resources_hold_one_object():
    first, second = (
        trial_of(measurement(Status.OK, Estimate(5.0, 4.0, 6.0), replace(SPILLING)), LATENCY) for _ in range(2)
    )
    assert first.resources is second.resources
