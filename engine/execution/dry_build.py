"""Build configs for a GPU that need not be here, and keep what the builds say instead of the binaries."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmtune.engine.execution.pruning import FailedBuild, build_result
from gemmtune.engine.measure.builder import BuildJob, builder_pool
from gemmtune.engine.processes.process_pool import Notify, log_notice
from gemmtune.engine.processes.scratch import ScratchFolder
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import kind_of

_DEADLINE_SECONDS = 300.0
"""Time after which a build is given up; nothing waits for it but a person."""


@dataclass(frozen=True, slots=True)
class DryBuild:
    """A config that was built, or why it was not."""

    task: Task
    """Task of the config."""
    config: Config
    """Config that was to be built."""
    result: Artifact | FailedBuild
    """Artifact, whose file is gone, or the failure with its reason."""

    @property
    def reason(self) -> str:
        """Reason why there is no binary; empty if there is one."""
        return self.result.reason if isinstance(self.result, FailedBuild) else ""


def build_dry(
    jobs: Sequence[tuple[Task, Config]], builders: int | None = None, notify: Notify = log_notice
) -> tuple[DryBuild, ...]:
    """Build configs in processes that see no GPU, and delete the binaries; return the results in the jobs' order.

    Args:
        jobs: tasks with their configs; equal ones are built once.
        builders: number of processes; by default one per core.
        notify: receives a line per repeated run of a job.
    """
    wanted = list(dict.fromkeys(jobs))
    found: dict[tuple[Task, Config], DryBuild] = {}
    spaces = tuple(dict.fromkeys(task.space for task, _ in wanted))
    size = min(builders or len(os.sched_getaffinity(0)), len(wanted))
    if not wanted:
        return ()
    with ScratchFolder() as folder:
        pool = builder_pool(spaces, Path(folder), size, _DEADLINE_SECONDS, notify)
        try:
            for outcome in pool.run(BuildJob(task, config) for task, config in wanted):
                job = outcome.job
                found[job.task, job.config] = DryBuild(job.task, job.config, build_result(outcome))
        finally:
            pool.close()
    return tuple(found[job] for job in wanted)


def with_defaults(
    problems: Sequence[Workload], device: Device, builders: int | None = None, notify: Notify = log_notice
) -> dict[Workload, tuple[DryBuild, ...]]:
    """Return problems whose baseline is the first config that their programs would run untuned and that builds.

    Problems with one such config are not built. One whose configs all fail keeps the first.

    Args:
        problems: problems, of which some may leave the choice of their default to the GPU.
        device: GPU that the defaults have to run on.
        builders: as for `build_dry`.
        notify: as for `build_dry`.

    Returns:
        Each problem with what was built of it: the default that builds, or all that fail.
    """
    choices = {
        problem: [each for each in kind_of(problem.kind).untuned(problem) if _baseline(each, device)] or [problem]
        for problem in problems
    }
    found = {problem: (its[0], list[DryBuild]()) for problem, its in choices.items()}
    waiting = {problem: iter(its) for problem, its in choices.items() if len(its) > 1}
    while waiting:
        asked = {problem: each for problem, its in waiting.items() if (each := next(its, None)) is not None}
        jobs = [job for each in asked.values() for job in _baseline(each, device)]
        built = dict(zip(asked, build_dry(jobs, builders, notify), strict=True))
        for problem, build in built.items():
            if not build.reason:
                found[problem] = build.task.problem, [build]
            else:
                found[problem][1].append(build)
        waiting = {problem: waiting[problem] for problem, build in built.items() if build.reason}
    return {problem: tuple(builds) for problem, builds in found.values()}


def _baseline(problem: Workload, device: Device) -> list[tuple[Task, Config]]:
    """Return what runs untuned, if anything does."""
    task = Task(problem, device, problem.baseline_space)
    return [(task, config) for config in registry.space(task.space).seeds(task)[:1]]
