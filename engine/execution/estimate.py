"""Build for a GPU that is not here, and take the times from the space's analytic model."""

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from gemmtune.engine.execution.artifact_cache import discard
from gemmtune.engine.execution.pruning import UNBUILT, FailedBuild, build_result, pruning_reason
from gemmtune.engine.measure.builder import BuildFailure, BuildJob, builder_pool
from gemmtune.engine.processes.process_pool import Notify, ProcessPool, log_notice, wait_for_any
from gemmtune.engine.processes.scratch import ScratchFolder
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.search import Prior
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.executor import Executor, Finished
from gemmtune.engine.seams.pruner import Candidate, Pruner
from gemmtune.engine.seams.space import Space


class EstimateExecutor(Executor):
    """Builds each submitted config, deletes the binary, and answers with the time of the space's model."""

    evidence: Evidence = Evidence.ESTIMATED
    """Evidence of the answers: a model computed them."""
    parallel: int = 1
    """Number of workers; the builders alone limit what is built at once."""

    def __init__(
        self,
        spaces: Mapping[str, Space],
        *,
        builders: int | None = None,
        pruners: Mapping[str, Pruner] | None = None,
        notify: Notify = log_notice,
    ) -> None:
        """Start no process yet; the first submitted config does. By default there is one builder per core.

        Raises:
            ToolchainMissing: a space cannot build here.
        """
        self._toolchains = {name: space.toolchain() for name, space in spaces.items()}
        self._spaces = dict(spaces)
        self._pruners = dict(pruners or {})
        self._size = builders or len(os.sched_getaffinity(0))
        self._notify = notify
        self._worker_name = f"{platform.node()}/cpu/pid{os.getpid()}"
        self._priors: dict[Task, Prior] = {}
        self._history: dict[Task, list[Measurement]] = {}
        self._finished: list[Finished] = []
        self._folder: ScratchFolder | None = None
        self._builders: ProcessPool[BuildJob, Artifact | BuildFailure] | None = None

    def toolchain(self, task: Task) -> Toolchain:
        """Return the installed versions that the task's space builds with."""
        return self._toolchains[task.space]

    def protocol(self, task: Task) -> str:
        """Return `estimate: ` and the model with its version; other versions give other numbers."""
        return f"estimate: {self.prior(task).model}"

    def submit(self, task: Task, config: Config) -> None:
        """Queue the build, unless a pruner drops the config or the model has no estimate of it."""
        reason = pruning_reason(self._pruners, Candidate(task, config), self._history.get(task, ()))
        if reason:
            self._finish(task, config, Status.INVALID, reason, protocol=UNBUILT)
        elif config not in self.prior(task).times_ns:
            self._finish(task, config, Status.INVALID, f"{self.prior(task).model} has no estimate of it")
        else:
            if self._builders is None:
                self._folder = ScratchFolder()
                folder = Path(self._folder.name)
                self._builders = builder_pool(tuple(self._spaces), folder, self._size, notify=self._notify)
            self._builders.submit(BuildJob(task, config))

    def collect(self, timeout_seconds: float) -> list[Finished]:
        """Return what has finished; wait up to the timeout for at least one build."""
        if self._builders is not None:
            self._take_builds(self._builders)
            if not self._finished and self._builders.pending:
                wait_for_any([self._builders], timeout_seconds)
                self._take_builds(self._builders)
        finished, self._finished = self._finished, []
        return finished

    def close(self) -> None:
        """End every process and delete what is left of the builds."""
        if self._builders is not None:
            self._builders.close()
        if self._folder is not None:
            self._folder.cleanup()

    def prior(self, task: Task) -> Prior:
        """Return what the task's space estimates of its configs."""
        if task not in self._priors:
            self._priors[task] = self._spaces[task.space].prior(task)
        return self._priors[task]

    def _take_builds(self, builders: ProcessPool[BuildJob, Artifact | BuildFailure]) -> None:
        for outcome in builders.collect():
            self._after_build(outcome.job.task, outcome.job.config, build_result(outcome))

    def _after_build(self, task: Task, config: Config, result: Artifact | FailedBuild) -> None:
        if isinstance(result, FailedBuild):
            self._finish(task, config, result.status, result.reason, result)
            return
        discard(result)
        reason = pruning_reason(self._pruners, Candidate(task, config, result), self._history.get(task, ()))
        self._finish(task, config, Status.INVALID if reason else Status.OK, reason, result)

    def _finish(
        self,
        task: Task,
        config: Config,
        status: Status,
        reason: str,
        result: Artifact | FailedBuild | None = None,
        *,
        protocol: str | None = None,
    ) -> None:
        time_ns = self.prior(task).times_ns.get(config, 0.0)
        measurement = Measurement(
            task=task,
            config=config,
            status=status,
            evidence=self.evidence,
            protocol=protocol or self.protocol(task),
            toolchain=self.toolchain(task),
            worker=self._worker_name,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            reason=reason,
            estimate=Estimate(time_ns, time_ns, time_ns) if status is Status.OK else None,
            resources=result.resources if isinstance(result, Artifact) else None,
            build_seconds=result.build_seconds if result is not None else None,
        )
        self._history.setdefault(task, []).append(measurement)
        self._finished.append(measurement)
