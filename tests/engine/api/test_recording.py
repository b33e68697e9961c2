"""A recorded landscape has the configs that were measured, in the order of the search."""

from __future__ import annotations

from dataclasses import replace

from gemmtune.engine.api.recording import landscape_from
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.seams import registry
from gemmtune.engine.testing.objective_conformance import example_failure, example_measurement


def test_a_config_that_was_asked_and_never_measured_is_left_out():
    configs = [Config({"BLOCK_M": size}) for size in (16, 32, 64)]
    fast = replace(example_measurement(), config=configs[2], created_at="2026-11-20T10:00:00+00:00", build_seconds=0.5)
    failed = replace(example_failure(Status.RUN_FAILED), config=configs[0], created_at="2026-11-19T10:00:00+00:00")
    task = replace(fast.task, space="triton_mm")
    found = landscape_from(task, registry.space("triton_mm"), configs, {configs[2]: fast, configs[0]: failed})
    assert [*found.points] == [configs[0], configs[2]]
    assert found.points[configs[0]].time_ns is None
    assert found.points[configs[2]].time_ns == fast.estimate.time_ns
    assert found.points[configs[2]].build_seconds == 0.5
    assert (found.name, found.context["space"], found.context["date"]) == (task.problem.name, "triton_mm", "2026-11-19")
    assert found.context["protocol"] == fast.protocol
