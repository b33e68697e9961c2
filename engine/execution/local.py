"""An executor of this machine's own: builder processes on its cores, one worker process on each of its GPUs."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from gemmtune.engine.execution.dispatcher import Pool
from gemmtune.engine.execution.pipeline import BuildMeasurePipeline
from gemmtune.engine.execution.workers import Builders, Workers, measured_provenance, problem_of
from gemmtune.engine.measure.builder import builder_pool
from gemmtune.engine.measure.protocols import Protocol, protocol
from gemmtune.engine.measure.worker import worker_pool
from gemmtune.engine.platform.gpu_info import equal_gpus
from gemmtune.engine.processes.process_pool import Notify, Waitable, log_notice, wait_for_any
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.pruner import Pruner

__all__ = ["LocalExecutor"]


class LocalExecutor(BuildMeasurePipeline):
    """Builds on the CPUs while the GPUs time."""

    def __init__(
        self,
        spaces: Sequence[str],
        protocol_name: str,
        *,
        builders: int | None = None,
        pruners: Mapping[str, Pruner] | None = None,
        racing: bool = True,
        build_deadline_seconds: float = 60.0,
        run_deadline_seconds: float = 60.0,
        notify: Notify = log_notice,
    ) -> None:
        """Take the visible GPUs that are alike: the first, and those of its kind.

        Args:
            spaces: names of the spaces to build for.
            protocol_name: name of the timing protocol.
            builders: builder processes; by default one a core, less one for each process that feeds a GPU.
            pruners: by name, asked before the build and again between build and measurement.
            racing: whether launches stop once a config is behind the task's best; without, every config gets all.
            build_deadline_seconds: run time of one build.
            run_deadline_seconds: run time of one measurement, or of one final.
            notify: receives a line for each thing that a person should know.

        Raises:
            ContractError: no such protocol.
        """
        timed = protocol(protocol_name)
        toolchains = {name: registry.space(name).toolchain() for name in spaces}
        gpus = equal_gpus() or ("",)  # without one its worker says itself what is missing
        self._folder = tempfile.TemporaryDirectory(prefix="gemmtune-")
        self._size = builders or max(len(os.sched_getaffinity(0)) - len(gpus), 1)
        deadlines = build_deadline_seconds, run_deadline_seconds

        def open_site() -> _LocalSite:
            return _LocalSite(tuple(toolchains), timed, gpus, Path(self._folder.name), self._size, deadlines, notify)

        # With energy the slower config may be the one that is wanted.
        racing = racing and not timed.energy
        provenance = measured_provenance(toolchains, protocol_name)
        super().__init__(provenance, open_site, len(gpus), pruners=pruners, racing=racing, notify=notify)

    def close(self) -> None:
        """End every process and delete the binaries."""
        super().close()
        self._folder.cleanup()


class _LocalSite:
    """Processes of this machine."""

    def __init__(
        self,
        spaces: tuple[str, ...],
        timed: Protocol,
        gpus: Sequence[str],
        folder: Path,
        size: int,
        deadlines: tuple[float, float],
        notify: Notify,
    ) -> None:
        build_deadline_seconds, run_deadline_seconds = deadlines
        host, pid = platform.node(), os.getpid()
        with ExitStack() as starting:  # if a later one does not start, the earlier ones end
            # The workers start first, and come up while the builders do.
            workers = {}
            for number, gpu in enumerate(gpus):
                place = worker_pool(
                    timed,
                    spaces,
                    run_deadline_seconds,
                    name=f"GPU {number}",
                    environment={"CUDA_VISIBLE_DEVICES": gpu} if len(gpus) > 1 else {},
                    notify=notify,
                )
                starting.callback(place.close)
                workers[f"{host}/gpu{number}/pid{pid}"] = place
            builders = builder_pool(spaces, folder, size, build_deadline_seconds, notify)
            starting.pop_all()
        self._processes: list[Waitable] = [builders, *workers.values()]
        self.builders: Builders = Pool({f"{host}/cpu/pid{pid}": builders}, notify=notify)
        self.workers: Workers = Pool(workers, home=problem_of, notify=notify)

    def wait(self, timeout_seconds: float) -> None:
        wait_for_any(self._processes, timeout_seconds)

    def close(self) -> None:
        self.workers.close()
        self.builders.close()
