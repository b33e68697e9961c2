"""What keeps a config from going on: a pruner that drops it, a build that fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gemmtune.engine.measure.builder import BuildFailure, BuildJob
from gemmtune.engine.measure.process import Loss, Outcome
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.seams.pruner import Candidate, Pruner

__all__ = ["UNBUILT", "FailedBuild", "built", "dropped"]

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
