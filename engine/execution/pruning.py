"""Applies pruners to candidates, and turns failed builds into statuses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gemmtune.engine.measure.builder import BuildFailure, BuildJob
from gemmtune.engine.processes.process_pool import Loss, Outcome
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.seams.pruner import Candidate, Pruner

UNBUILT = "unbuilt"
"""Protocol of a config that was pruned before its build. No timing protocol was begun, so that a campaign with other
pruners does not find the config in the database and measures it."""


def pruning_reason(pruners: Mapping[str, Pruner], candidate: Candidate, history: Sequence[Measurement]) -> str:
    """Return why the first pruner drops the candidate, with the pruner's name; empty if all pruners keep it."""
    for name, pruner in pruners.items():
        verdict = pruner.judge(candidate, history)
        if not verdict:
            return f"pruned by {name}: {verdict.reason}"
    return ""


@dataclass(frozen=True, slots=True)
class FailedBuild:
    """A build that left no artifact."""

    status: Status
    """Status of the config: BUILD_FAILED or TIMED_OUT."""
    reason: str
    """Cause of the failure, for a person."""
    build_seconds: float | None
    """Time until the build failed, s; None if its process was lost."""


def build_result(outcome: Outcome[BuildJob, Artifact | BuildFailure]) -> Artifact | FailedBuild:
    """Return the artifact of a build, or the status and reason of its failure."""
    result = outcome.result
    if result is None:
        status = Status.TIMED_OUT if outcome.loss is Loss.TIMED_OUT else Status.BUILD_FAILED
        return FailedBuild(status, f"build: {outcome.reason}", None)
    if isinstance(result, BuildFailure):
        return FailedBuild(Status.BUILD_FAILED, result.reason, result.build_seconds)
    return result


def prune_recorded(found: Measurement, pruners: Mapping[str, Pruner], history: Sequence[Measurement]) -> Measurement:
    """Apply the pruners to a recorded measurement, before its build and after it; return what they let happen of it."""
    task, config = found.task, found.config
    reason = pruning_reason(pruners, Candidate(task, config), history)
    if reason:
        found = replace(found, resources=None, build_seconds=None, protocol=UNBUILT)
    elif found.status not in (Status.INVALID, Status.BUILD_FAILED):
        artifact = Artifact("", task.space, "", "", (), found.resources, found.build_seconds or 0.0, found.toolchain)
        reason = pruning_reason(pruners, Candidate(task, config, artifact), history)
    return replace(found, status=Status.INVALID, reason=reason, samples_ns=(), estimate=None) if reason else found
