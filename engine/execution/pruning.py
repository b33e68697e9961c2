"""What keeps a config from going on: a pruner that drops it, a build that fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gemmtune.engine.measure.builder import BuildFailure, BuildJob
from gemmtune.engine.processes.process_pool import Loss, Outcome
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.seams.pruner import Candidate, Pruner

__all__ = ["UNBUILT", "FailedBuild", "built", "dropped", "replayed"]

UNBUILT = "unbuilt"
"""Protocol of a config that was dropped before its build. No timing protocol was begun, and a campaign that asks for
those finds nothing: with other pruners the config gets its chance."""


def dropped(pruners: Mapping[str, Pruner], candidate: Candidate, history: Sequence[Measurement]) -> str:
    """Why a pruner drops the candidate, with the pruner's name; empty where all keep it."""
    for name, pruner in pruners.items():
        verdict = pruner.judge(candidate, history)
        if not verdict:
            return f"pruned by {name}: {verdict.reason}"
    return ""


@dataclass(frozen=True, slots=True)
class FailedBuild:
    """A build that left no artifact."""

    status: Status
    """BUILD_FAILED or TIMED_OUT."""
    reason: str
    """Why, for a person."""
    build_seconds: float | None
    """What finding out cost, where that is known."""


def built(outcome: Outcome[BuildJob, Artifact | BuildFailure]) -> Artifact | FailedBuild:
    """What a builder left, or what the config's status is without it."""
    result = outcome.result
    if result is None:
        status = Status.TIMED_OUT if outcome.loss is Loss.TIMED_OUT else Status.BUILD_FAILED
        return FailedBuild(status, f"build: {outcome.reason}", None)
    if isinstance(result, BuildFailure):
        return FailedBuild(Status.BUILD_FAILED, result.reason, result.build_seconds)
    return result


def replayed(found: Measurement, pruners: Mapping[str, Pruner], history: Sequence[Measurement]) -> Measurement:
    """As much of a recorded measurement as the pruners let happen: all of it, or up to where one drops it."""
    task, config = found.task, found.config
    reason = dropped(pruners, Candidate(task, config), history)
    if reason:
        unbuilt = replace(found, resources=None, build_seconds=None, protocol=UNBUILT)
        return _cut(unbuilt, 0, reason)
    if found.status in (Status.INVALID, Status.BUILD_FAILED):
        return found
    artifact = Artifact("", task.space, "", "", (), found.resources, found.build_seconds or 0.0, found.toolchain)
    for launches in range(max(1, len(found.samples_ns))):
        candidate = Candidate(task, config, artifact, found.samples_ns[:launches])
        reason = dropped(pruners, candidate, history)
        if reason:
            return _cut(found, launches, reason)
    return found


def _cut(found: Measurement, launches: int, reason: str) -> Measurement:
    samples = found.samples_ns[:launches]
    return replace(found, status=Status.INVALID, reason=reason, samples_ns=samples, estimate=None)
