"""The executor of this machine: builder processes on its cores, one worker process per GPU."""

import os
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from gemmtune.engine.execution.dispatcher import Dispatcher
from gemmtune.engine.execution.pipeline import BuildMeasurePipeline
from gemmtune.engine.execution.workers import Builders, GpuWorkers, measured_provenance, problem_of
from gemmtune.engine.measure.builder import builder_pool
from gemmtune.engine.measure.protocols import Protocol, protocol
from gemmtune.engine.measure.worker import worker_pool
from gemmtune.engine.processes.process_pool import Notify, ProcessPool, log_notice, wait_for_any
from gemmtune.engine.processes.scratch import ScratchFolder
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.pruner import Pruner
from gemmtune.engine.toolchain.board_facts import XidWatch, board_facts
from gemmtune.engine.toolchain.gpu_info import equal_gpus

_XID_SECONDS = 1.0  # between two looks for errors that the driver of the GPUs reports
_CORE_FOR_DRIVER = 32
"""Number of CPUs from which builders leave a whole core to the driver, which many builders keep busy."""


class LocalExecutor(BuildMeasurePipeline):
    """Builds on the CPUs while the GPUs time."""

    def __init__(
        self,
        spaces: Sequence[str],
        protocol_name: str,
        *,
        builders: int | None = None,
        pruners: Mapping[str, Pruner] | None = None,
        early_stopping: bool = True,
        evenly: bool = True,
        notify: Notify = log_notice,
    ) -> None:
        """Choose the first visible GPU and those of its model; start no process yet.

        Args:
            spaces: names of the spaces to build for.
            protocol_name: name of the timing protocol.
            builders: number of builder processes; by default one per core, less one per GPU.
            pruners: by name, asked before the build and again between build and measurement.
            early_stopping: whether launches stop once a config is behind the task's best; if not, every config gets
                all its launches.
            evenly: whether all tasks advance alike, so that a campaign that stops early has as much of each; if not,
                the first ones end first.
            notify: receives lines that a person should read.

        Raises:
            ContractError: no protocol has that name.
        """
        timed = protocol(protocol_name)
        toolchains = {name: registry.space(name).toolchain() for name in spaces}
        gpus = equal_gpus() or ("",)  # without a GPU the worker reports what is missing
        super().__init__(
            measured_provenance(toolchains, protocol_name),
            partial(_LocalMachine, tuple(toolchains), timed, gpus, builders, notify),
            len(gpus),
            pruners=pruners,
            early_stopping=early_stopping and not timed.energy,  # the slower config may need less energy
            evenly=evenly,
            notify=notify,
        )


class _LocalMachine:
    """Processes of this machine."""

    def __init__(
        self, spaces: tuple[str, ...], timed: Protocol, gpus: Sequence[str], builders: int | None, notify: Notify
    ) -> None:
        host, pid = platform.node(), os.getpid()
        cpus = os.sched_getaffinity(0)
        size = builders or max(len(cpus) - len(gpus), 1)
        with ExitStack() as opened:  # if a pool does not start, the earlier ones end
            folder = opened.enter_context(ScratchFolder())
            # The workers start first, and import while the builders start.
            workers = {}
            for number, gpu in enumerate(gpus):
                environment = {"CUDA_VISIBLE_DEVICES": gpu} if len(gpus) > 1 else {}
                pool = worker_pool(timed, spaces, name=f"GPU {number}", environment=environment, notify=notify)
                opened.callback(pool.close)
                workers[f"{host}/gpu{number}/pid{pid}"] = pool
            pool_of_builders = builder_pool(spaces, Path(folder), size, notify=notify, cpus=_cpus_for_builders(cpus))
            opened.callback(pool_of_builders.close)
            self._opened = opened.pop_all()
        self._pools: list[ProcessPool[Any, Any]] = [pool_of_builders, *workers.values()]
        self.builders: Builders = Dispatcher({f"{host}/cpu/pid{pid}": pool_of_builders}, notify=notify)
        self.workers: GpuWorkers = Dispatcher(workers, affinity=problem_of, notify=notify)
        self.workers.boards |= {name: gpu for name, gpu in zip(workers, gpus, strict=True) if gpu}
        for facts in filter(None, map(board_facts, self.workers.boards.values())):
            for line in facts.faults:
                notify(line)
        self._xids, self._looked, self._notify = XidWatch(self.workers.boards.values()), time.monotonic(), notify

    def wait(self, timeout_seconds: float) -> None:
        until, received = time.monotonic() + timeout_seconds, False
        while not received and time.monotonic() < until:  # that a job runs now is nothing to return for
            received = sum(pool.receive() for pool in wait_for_any(self._pools, until - time.monotonic())) > 0
        if time.monotonic() >= self._looked + _XID_SECONDS:
            self._looked = time.monotonic()
            for line in self._xids.lines():
                self._notify(line)

    def close(self) -> None:
        self._opened.close()


def _cpus_for_builders(cpus: set[int]) -> set[int]:
    """Return these CPUs, without those of one core where they are many."""
    if len(cpus) < _CORE_FOR_DRIVER:
        return cpus
    siblings = Path(f"/sys/devices/system/cpu/cpu{min(cpus)}/topology/thread_siblings_list")
    text = siblings.read_text(encoding="ascii") if siblings.exists() else str(min(cpus))
    ends = [part.split("-") for part in text.split(",")]
    return cpus - {cpu for first, *last in ends for cpu in range(int(first), int((last or [first])[0]) + 1)}
