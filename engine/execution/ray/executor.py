"""The executor of a Ray cluster: builders on every node's cores, one worker per GPU of one model."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from gemmtune.engine.execution.dispatcher import Dispatcher
from gemmtune.engine.execution.pipeline import BuildMeasurePipeline
from gemmtune.engine.execution.ray.actor import BuilderActor, JobActor, MakeWorker, WorkerActor
from gemmtune.engine.execution.ray.actor_handle import ActorHandle
from gemmtune.engine.execution.ray.cluster import Cluster, Node
from gemmtune.engine.execution.workers import Builders, GpuWorkers, measured_provenance, problem_of
from gemmtune.engine.measure.builder import BuildFailure, BuildJob, builder_pool
from gemmtune.engine.measure.jobs import FinalJob, FinalReading, MeasureJob, Reading
from gemmtune.engine.measure.protocols import Protocol, protocol
from gemmtune.engine.measure.worker import worker_pool
from gemmtune.engine.processes.process_pool import Notify, ProcessPool, log_notice
from gemmtune.engine.processes.scratch import ScratchFolder
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.errors import DeviceError, GemmtuneError, ToolchainMissing
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.pruner import Pruner
from gemmtune.engine.toolchain.gpu_info import present_device

_JOIN_SECONDS = 10.0
"""Time between two looks for machines that have joined the cluster."""

_GO_ON = "what was measured is kept: give the same command again to go on where it was"
_AHEAD = 3
"""Jobs that an actor holds per job that it runs: one runs, one is next, one is on its way."""


@dataclass(frozen=True, slots=True)
class ActorPlan:
    """One actor that a node gets."""

    name: str
    """Unique name for messages and measurements."""
    make_worker: MakeWorker[Any, Any]
    """Makes the actor's worker."""
    cpus: float = 0.0
    """Number of cores that the actor takes."""
    gpus: float = 0.0
    """Number of GPUs that the actor takes."""


PlanActors = Callable[[Node], tuple[Sequence[ActorPlan], Sequence[ActorPlan]]]
"""Returns the builder actors and the worker actors of a node."""


class RayMachines:
    """Actors on all nodes of a cluster, including nodes that join later."""

    def __init__(
        self, cluster: Cluster, plan_actors: PlanActors, *, affinity: bool = True, notify: Notify = log_notice
    ) -> None:
        """Start the actors.

        Args:
            cluster: connection to the cluster.
            plan_actors: returns what each node gets.
            affinity: whether a worker sets itself up for a problem.
            notify: receives lines that a person should read.
        """
        self._cluster = cluster
        self._plan_actors = plan_actors
        self._notify = notify
        self._folder = ScratchFolder()
        self._wake = Event()
        self._known: set[str] = set()
        group = problem_of if affinity else None
        self.builders: Builders = Dispatcher({}, ahead=_AHEAD, notify=notify)
        self.workers: GpuWorkers = Dispatcher({}, ahead=_AHEAD, affinity=group, notify=notify)
        self._add_nodes()

    def wait(self, timeout_seconds: float) -> None:
        """Wait for a reply of an actor, and start actors on nodes that have joined.

        Raises:
            GemmtuneError: the cluster that was started here is lost.
        """
        if fault := self._cluster.fault():
            raise GemmtuneError(f"the Ray cluster is lost: its {fault} ended; {_GO_ON}")
        self._wake.wait(timeout_seconds)
        self._wake.clear()
        if time.monotonic() > self._next_look:
            self._add_nodes()

    def close(self) -> None:
        """End the actors and their processes."""
        if not self._cluster.fault():
            self.workers.close()
            self.builders.close()
        self._folder.cleanup()

    def _add_nodes(self) -> None:
        self._next_look = time.monotonic() + _JOIN_SECONDS
        for node in self._cluster.nodes():
            if node.id not in self._known:
                self._known.add(node.id)
                builders, workers = self._plan_actors(node)
                for plan in builders:
                    self.builders.add(plan.name, self._start(BuilderActor, plan, node))
                for plan in workers:
                    self.workers.add(plan.name, self._start(WorkerActor, plan, node))

    def _start(self, actor: type[JobActor], plan: ActorPlan, node: Node) -> ActorHandle[Any, Any]:
        started = self._cluster.start(actor, plan.make_worker, node, plan.cpus, plan.gpus)
        return ActorHandle(plan.name, started, Path(self._folder.name), self._wake, self._notify)


class RayExecutor(BuildMeasurePipeline):
    """Builds on a cluster's CPUs while its GPUs of one model time."""

    def __init__(
        self,
        cluster: Cluster,
        device_sku: str,
        spaces: Sequence[str],
        protocol_name: str,
        *,
        builders: int | None = None,
        pruners: Mapping[str, Pruner] | None = None,
        early_stopping: bool = True,
        notify: Notify = log_notice,
    ) -> None:
        """Prepare the executor, which starts no actor yet; `close` closes the cluster too.

        GPUs of other models stay idle. `builders` are per node: by default one per core, less one per GPU.

        Raises:
            ContractError: no protocol has that name.
        """
        timed = protocol(protocol_name)
        toolchains = {name: registry.space(name).toolchain() for name in spaces}

        def plan_actors(node: Node) -> tuple[Sequence[ActorPlan], Sequence[ActorPlan]]:
            name, size = f"{node.host}/{node.id[:6]}", builders or max(node.cpus - node.gpus, 1)
            build = partial(_make_builders, toolchains, size)
            workers = []
            for gpu in (f"{name}/gpu{number}" for number in range(node.gpus)):
                measure = partial(_make_worker, timed, toolchains, device_sku, gpu)
                workers.append(ActorPlan(gpu, measure, gpus=1))
            return ([ActorPlan(f"{name}/cpu", build, cpus=size)] if node.cpus else []), workers

        self._cluster = cluster
        super().__init__(
            measured_provenance(toolchains, protocol_name),
            partial(RayMachines, cluster, plan_actors, notify=notify),
            max(sum(node.gpus for node in cluster.nodes()), 1),
            pruners=pruners,
            early_stopping=early_stopping and not timed.energy,
            notify=notify,
        )

    def close(self) -> None:
        """End the actors and the connection."""
        super().close()
        self._cluster.close()


def _make_builders(
    toolchains: Mapping[str, Toolchain], size: int, folder: Path, notify: Notify
) -> ProcessPool[BuildJob, Artifact | BuildFailure]:
    _check_toolchains(toolchains)
    return builder_pool(tuple(toolchains), folder, size, notify=notify)


def _make_worker(
    timed: Protocol, toolchains: Mapping[str, Toolchain], device_sku: str, name: str, _folder: Path, notify: Notify
) -> ProcessPool[MeasureJob | FinalJob, Reading | FinalReading]:
    """Make a worker on the GPU that Ray chose for its actor.

    Raises:
        DeviceError: the GPU is of another model than the tasks.
        ToolchainMissing: another toolchain is installed than on the driver's machine.
    """
    _check_toolchains(toolchains)
    device = present_device()
    if device is None or device.sku != device_sku:
        raise DeviceError(f"its GPU is {device.sku if device else 'not to be seen'}, the tasks are of {device_sku}")
    return worker_pool(timed, tuple(toolchains), name=name, notify=notify)


def _check_toolchains(toolchains: Mapping[str, Toolchain]) -> None:
    for name, wanted in toolchains.items():
        here = registry.space(name).toolchain()
        if here != wanted:
            raise ToolchainMissing(f"it has {here.text} and the driver {wanted.text}: install the same on both")
