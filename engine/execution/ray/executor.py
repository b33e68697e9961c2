"""The executor of a Ray cluster: builders on every node's cores, one worker per GPU of one model."""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from threading import Event
from typing import Any

from gemmtune.engine.execution.dispatcher import Dispatcher
from gemmtune.engine.execution.pipeline import BuildMeasurePipeline
from gemmtune.engine.execution.ray.actor import BuilderActor, JobActor, MakeWorker, WorkerActor
from gemmtune.engine.execution.ray.actor_handle import ActorHandle
from gemmtune.engine.execution.ray.cluster import SAY_AGAIN_SECONDS, SAY_SECONDS, Cluster, Node, label_of
from gemmtune.engine.execution.ray.demand import Demand
from gemmtune.engine.execution.workers import Builders, GpuWorkers, measured_provenance, problem_of
from gemmtune.engine.measure.builder import BuildFailure, BuildJob, builder_pool
from gemmtune.engine.measure.jobs import FinalJob, FinalReading, MeasureJob, Reading
from gemmtune.engine.measure.protocols import Protocol, protocol
from gemmtune.engine.measure.worker import worker_pool
from gemmtune.engine.processes.process_pool import Notify, ProcessPool, log_notice
from gemmtune.engine.processes.scratch import ScratchFolder
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError, GemmtuneError, ToolchainMissing
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.pruner import Pruner
from gemmtune.engine.toolchain.gpu_info import present_device

_JOIN_SECONDS = 10.0
"""Time between two looks for machines that have joined the cluster."""

_GO_ON = "what was measured is kept: give the same command again to go on where it was"
_IDLE_SECONDS = 30.0
"""Time without a job after which an actor is released for other campaigns: a few times what one takes to start."""
_CORES_PER_ACTOR = 4
"""Cores of a builder actor, so that several campaigns find room on a node."""
_BUILDS_PER_ACTOR, _JOBS_PER_GPU = 16, 64
"""Waiting jobs that are worth another builder actor or GPU worker; a node takes a minute to start, and others join."""
_AHEAD = 3
"""Jobs that a GPU's actor holds: one runs, one is next, one is on its way. An actor of builders has several of each."""


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


@dataclass(slots=True, eq=False)
class _Actor:
    """An actor that may run, and its handle while it does."""

    kind: type[JobActor]
    dispatcher: Builders | GpuWorkers
    plan: ActorPlan
    node: Node
    handle: ActorHandle[Any, Any] | None = None
    used_at: float = 0.0
    """Last time at which it had a job, or was still waiting for its start, in seconds of a monotonic clock."""


PlanActors = Callable[[Node], tuple[Sequence[ActorPlan], Sequence[ActorPlan]]]
"""Returns the builder actors and the worker actors of a node."""


class RayMachines:
    """Actors on the nodes of a cluster, including nodes that join later: on demand, and released when idle."""

    def __init__(
        self,
        cluster: Cluster,
        plan_actors: PlanActors,
        *,
        accelerator: str = "",
        affinity: bool = True,
        notify: Notify = log_notice,
    ) -> None:
        """Start the actors.

        Args:
            cluster: connection to the cluster.
            plan_actors: returns what each node gets.
            accelerator: Ray's label of the workers' GPUs; empty for any.
            affinity: whether a worker sets itself up for a problem.
            notify: receives lines that a person should read.
        """
        self._cluster = cluster
        self._plan_actors = plan_actors
        self._notify = notify
        self._folder = ScratchFolder()
        self._wake = Event()
        self._known: set[str] = set()
        self._actors: list[_Actor] = []
        self._driver = ""
        self._unstarted_since = time.monotonic()
        self._say_after = SAY_SECONDS
        group = problem_of if affinity else None
        self.builders: Builders = Dispatcher({}, notify=notify)
        self.workers: GpuWorkers = Dispatcher({}, ahead=_AHEAD, affinity=group, notify=notify)
        self._more_cores, self._more_gpus = Demand(_CORES_PER_ACTOR, 0), Demand(0, 1, accelerator)
        self._add_nodes()

    def wait(self, timeout_seconds: float) -> None:
        """Wait for a reply of an actor, and start actors on nodes that have joined.

        Raises:
            GemmtuneError: the cluster that was started here is lost.
        """
        if fault := self._cluster.fault():
            raise GemmtuneError(f"the Ray cluster is lost: its {fault}; {_GO_ON}")
        self._wake.wait(timeout_seconds)
        self._wake.clear()
        if time.monotonic() > self._next_look and self._cluster.answers:
            self._add_nodes()
            self._ask_for_more()
        self._balance()
        self._say_what_is_waited_for()

    def close(self) -> None:
        """End the actors and their processes."""
        if not self._cluster.fault():
            self._more_cores.update(0)
            self._more_gpus.update(0)
            self.workers.close()
            self.builders.close()
        self._folder.cleanup()

    def _add_nodes(self) -> None:
        self._next_look = time.monotonic() + _JOIN_SECONDS
        for node in self._cluster.nodes():
            if node.id not in self._known:
                self._known.add(node.id)
                builders, workers = self._plan_actors(node)
                new = [_Actor(BuilderActor, self.builders, plan, node) for plan in builders]
                new += [_Actor(WorkerActor, self.workers, plan, node) for plan in workers]
                for actor in new:
                    self._start(actor)
                self._actors += new

    def _ask_for_more(self) -> None:
        """Let the cluster's autoscaler, if it has one, see the jobs that wait: at most as many actors as there are."""
        for dispatcher, demand, jobs in (
            (self.builders, self._more_cores, _BUILDS_PER_ACTOR),
            (self.workers, self._more_gpus, _JOBS_PER_GPU),
        ):
            waiting = max(0, dispatcher.queued - dispatcher.room)
            demand.update(min(waiting // jobs, max(len(dispatcher.busy), 1)))

    def _start(self, actor: _Actor) -> None:
        plan = actor.plan
        started = self._cluster.start(actor.kind, plan.make_worker, actor.node, plan.cpus, plan.gpus)
        actor.handle = ActorHandle(plan.name, started, Path(self._folder.name), self._wake, self._notify)
        actor.used_at = time.monotonic()
        actor.dispatcher.add(plan.name, actor.handle)

    def _balance(self) -> None:
        """Release actors that have been idle, forget those that were excluded, and start some where jobs wait."""
        now = time.monotonic()
        for dispatcher in (self.builders, self.workers):
            busy = dispatcher.busy
            its = [actor for actor in self._actors if actor.dispatcher is dispatcher]
            for actor in its:
                if (handle := actor.handle) is None:
                    continue
                if actor.plan.name not in busy:
                    self._actors.remove(actor)
                elif busy[actor.plan.name] or not handle.size:
                    actor.used_at = now
                elif now - actor.used_at > _IDLE_SECONDS:
                    dispatcher.release(actor.plan.name)
                    actor.handle = None
                if actor.handle is not None and handle.board is not None:
                    self._compare(actor.plan.name, handle)
            busy = dispatcher.busy
            idle = [actor for actor in self._actors if actor.dispatcher is dispatcher and actor.handle is None]
            if idle and all(busy.values()) and dispatcher.pending + dispatcher.queued > len(busy):
                for actor in idle if self._cluster.answers else ():
                    self._start(actor)

    def _compare(self, name: str, handle: ActorHandle[Any, Any]) -> None:
        """Refuse a worker whose NVIDIA driver is another one than the first worker's."""
        facts = handle.board
        assert facts is not None
        self.workers.boards[name] = facts.uuid
        self._driver = self._driver or facts.driver
        if facts.driver != self._driver:
            other = f"its NVIDIA driver is {facts.driver} and that of other nodes {self._driver}"
            handle.refuse(f"{other}: use one on all")

    def _say_what_is_waited_for(self) -> None:
        """Say after 5 s, and then every minute, that no builder or no worker has started."""
        now, missing = time.monotonic(), []
        for dispatcher, what in ((self.builders, "builder"), (self.workers, "GPU worker")):
            its = [(a.handle, a.plan) for a in self._actors if a.dispatcher is dispatcher and a.handle is not None]
            if its and not any(handle.size for handle, _ in its):
                missing.append((what, its[0][1]))
        if not missing:
            self._unstarted_since, self._say_after = now, SAY_SECONDS
        elif now - self._unstarted_since > self._say_after and self._cluster.answers:
            self._say_after += SAY_AGAIN_SECONDS
            names = [what for what, plan in missing if not self._cluster.has_room(plan.cpus, plan.gpus)]
            seconds = f"{now - self._unstarted_since:.0f} s"
            if names:
                self._notify(
                    f"waiting for the cluster: no {' and no '.join(names)} in {seconds}; {self._cluster.free()}"
                )


class RayExecutor(BuildMeasurePipeline):
    """Builds on a cluster's CPUs while its GPUs of one model time."""

    def __init__(
        self,
        cluster: Cluster,
        device: Device,
        spaces: Sequence[str],
        protocol_name: str,
        *,
        builders: int | None = None,
        pruners: Mapping[str, Pruner] | None = None,
        early_stopping: bool = True,
        evenly: bool = True,
        notify: Notify = log_notice,
    ) -> None:
        """Prepare the executor, which starts no actor yet; `close` closes the cluster too.

        GPUs of other models are left alone. `builders` are per node: by default one per core, less one per GPU.
        `evenly`: see `LocalExecutor`.

        Raises:
            ContractError: no protocol has that name.
        """
        timed = protocol(protocol_name)
        toolchains, versions = {name: registry.space(name).toolchain() for name in spaces}, own_versions()

        def plan_actors(node: Node) -> tuple[Sequence[ActorPlan], Sequence[ActorPlan]]:
            name, size = f"{node.host}/{node.id[:6]}", builders or max(node.cpus - node.gpus, 1)
            sizes = [min(_CORES_PER_ACTOR, size - start) for start in range(0, size, _CORES_PER_ACTOR)]
            build = [
                ActorPlan(f"{name}/cpu{number}", partial(_make_builders, toolchains, versions, cores), cpus=cores)
                for number, cores in enumerate(sizes if node.cpus else ())
            ]
            workers = []
            for gpu in (f"{name}/gpu{number}" for number in range(node.gpus if node.may_have(device) else 0)):
                measure = partial(_make_worker, timed, toolchains, versions, device.sku, gpu)
                workers.append(ActorPlan(gpu, measure, gpus=1))
            return build, workers

        self._cluster = cluster
        fitting = [node for node in cluster.nodes() if node.may_have(device)]
        accelerator = label_of(device) if any(node.accelerator for node in fitting) else ""
        super().__init__(
            measured_provenance(toolchains, protocol_name),
            partial(RayMachines, cluster, plan_actors, accelerator=accelerator, notify=notify),
            max(sum(node.gpus for node in fitting), 1),
            pruners=pruners,
            early_stopping=early_stopping and not timed.energy,
            evenly=evenly,
            notify=notify,
        )

    def close(self) -> None:
        """End the actors and the connection."""
        super().close()
        self._cluster.close()


def _make_builders(
    toolchains: Mapping[str, Toolchain], versions: Toolchain, size: int, folder: Path, notify: Notify
) -> ProcessPool[BuildJob, Artifact | BuildFailure]:
    _check_toolchains(toolchains, versions)
    return builder_pool(tuple(toolchains), folder, size, notify=notify)


def _make_worker(
    timed: Protocol,
    toolchains: Mapping[str, Toolchain],
    versions: Toolchain,
    device_sku: str,
    name: str,
    _folder: Path,
    notify: Notify,
) -> ProcessPool[MeasureJob | FinalJob, Reading | FinalReading]:
    """Make a worker on the GPU that Ray chose for its actor.

    Raises:
        DeviceError: the GPU is of another model than the tasks.
        ToolchainMissing: another toolchain, gemmtune or Python is installed than on the driver's machine.
    """
    _check_toolchains(toolchains, versions)
    device = present_device()
    if device is None or device.sku != device_sku:
        raise DeviceError(f"its GPU is {device.sku if device else 'not to be seen'}, the tasks are of {device_sku}")
    return worker_pool(timed, tuple(toolchains), name=name, notify=notify)


def own_versions() -> Toolchain:
    """Return the versions of gemmtune and Python here: jobs are pickled, and both ends must understand them."""
    return Toolchain((("gemmtune", version("gemmtune")), ("Python", platform.python_version())))


def _check_toolchains(toolchains: Mapping[str, Toolchain], versions: Toolchain) -> None:
    found = ((own_versions(), versions), *((registry.space(name).toolchain(), w) for name, w in toolchains.items()))
    for here, wanted in found:
        if here != wanted:
            raise ToolchainMissing(f"it has {here.text} and the driver {wanted.text}: install the same on both")
