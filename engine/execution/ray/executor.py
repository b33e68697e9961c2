"""An executor of a Ray cluster: builders on every node's cores, one worker on each of its GPUs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from gemmtune.engine.execution.dispatcher import Pool
from gemmtune.engine.execution.pipeline import BuildMeasurePipeline
from gemmtune.engine.execution.ray.actor import Builder, Host, MakePlace, Worker
from gemmtune.engine.execution.ray.actor_handle import RayPlace
from gemmtune.engine.execution.ray.cluster import Cluster, Node
from gemmtune.engine.execution.workers import Builders, Workers, measured_provenance, problem_of
from gemmtune.engine.measure.builder import BuildFailure, BuildJob, builder_pool
from gemmtune.engine.measure.jobs import FinalJob, FinalReading, MeasureJob, Reading
from gemmtune.engine.measure.protocols import Protocol, protocol
from gemmtune.engine.measure.worker import worker_pool
from gemmtune.engine.platform.gpu_info import present_device
from gemmtune.engine.processes.process_pool import Notify, ProcessPool, log_notice
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.errors import DeviceError, ToolchainMissing
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.pruner import Pruner

__all__ = ["RayExecutor", "RaySite", "Seat", "Seating"]

_LOOK_SECONDS = 10.0
"""Between two looks for machines that have joined the cluster."""


@dataclass(frozen=True, slots=True)
class Seat:
    """One actor that a node is to have."""

    name: str
    """For messages and measurements; unlike every other's."""
    make_place: MakePlace[Any, Any]
    """What it does."""
    cpus: float = 0.0
    """Cores it takes."""
    gpus: float = 0.0
    """GPUs it takes."""


Seating = Callable[[Node], tuple[Sequence[Seat], Sequence[Seat]]]
"""The builders and the workers of a node."""


class RaySite:
    """Actors on all nodes of a cluster, on those too that join it later."""

    def __init__(
        self,
        cluster: Cluster,
        seating: Seating,
        *,
        ahead: int = 3,
        batch: int = 1,
        homes: bool = True,
        notify: Notify = log_notice,
    ) -> None:
        """Start the actors; the site closes the cluster.

        Args:
            cluster: where.
            seating: what each node is to have.
            ahead: jobs an actor has at hand for each that it runs, the running one included: one runs, one is next, one
                is on its way.
            batch: jobs that travel together; see `RayPlace`.
            homes: whether a worker sets itself up for a problem.
            notify: receives a line for each thing that a person should know.
        """
        self._cluster = cluster
        self._seating = seating
        self._batch = batch
        self._notify = notify
        self._folder = tempfile.TemporaryDirectory(prefix="gemmtune-")
        self._wake = Event()
        self._seated: set[str] = set()
        self._places: list[RayPlace[Any, Any]] = []
        self.builders: Builders = Pool({}, ahead=ahead, grain=batch, notify=notify)
        self.workers: Workers = Pool({}, ahead=ahead, grain=batch, home=problem_of if homes else None, notify=notify)
        self._seat_nodes()

    def wait(self, timeout_seconds: float) -> None:
        """Wait for an actor's word."""
        for pool in (self.builders, self.workers):
            pool.flush()
        for place in self._places:
            place.flush()
        self._wake.wait(timeout_seconds)
        self._wake.clear()
        if time.monotonic() > self._look_again:
            self._seat_nodes()

    def close(self) -> None:
        """End the actors and the connection."""
        self.workers.close()
        self.builders.close()
        self._cluster.close()
        self._folder.cleanup()

    def _seat_nodes(self) -> None:
        self._look_again = time.monotonic() + _LOOK_SECONDS
        for node in self._cluster.nodes():
            if node.id not in self._seated:
                self._seated.add(node.id)
                builders, workers = self._seating(node)
                for seat in builders:
                    self.builders.add(seat.name, self._place(Builder, seat, node))
                for seat in workers:
                    self.workers.add(seat.name, self._place(Worker, seat, node))

    def _place(self, host: type[Host], seat: Seat, node: Node) -> RayPlace[Any, Any]:
        place = RayPlace[Any, Any](
            seat.name,
            partial(self._cluster.start, host, seat.make_place, node, seat.cpus, seat.gpus),
            lambda: any(there.id == node.id for there in self._cluster.nodes()),
            Path(self._folder.name),
            self._wake,
            self._batch,
            self._notify,
        )
        self._places.append(place)
        return place


class RayExecutor(BuildMeasurePipeline):
    """Builds on a cluster's CPUs while its GPUs of one kind time."""

    def __init__(
        self,
        cluster: Cluster,
        device_sku: str,
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
        """Start nothing yet; the executor closes the cluster.

        Args:
            cluster: where.
            device_sku: the GPUs to use; others in the cluster are left alone.
            spaces: names of the spaces to build for.
            protocol_name: name of the timing protocol.
            builders: builder processes of a node; by default one a core, less one a GPU.
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

        def seating(node: Node) -> tuple[Sequence[Seat], Sequence[Seat]]:
            size = builders or max(node.cpus - node.gpus, 1)
            build = partial(_make_builders, toolchains, size, build_deadline_seconds)
            crew = Seat(f"{node.host}/{node.id[:6]}/cpu", build, cpus=size)
            workers = []
            for number in range(node.gpus):
                name = f"{node.host}/{node.id[:6]}/gpu{number}"
                make = partial(_make_worker, timed, toolchains, run_deadline_seconds, device_sku, name)
                workers.append(Seat(name, make, gpus=1))
            return ([crew] if node.cpus else []), workers

        self._cluster: Cluster = cluster
        super().__init__(
            measured_provenance(toolchains, protocol_name),
            partial(RaySite, cluster, seating, notify=notify),
            max(sum(node.gpus for node in cluster.nodes()), 1),
            pruners=pruners,
            racing=racing and not timed.energy,
            notify=notify,
        )

    def close(self) -> None:
        """End the actors and the connection."""
        super().close()
        self._cluster.close()


def _make_builders(
    toolchains: Mapping[str, Toolchain], size: int, deadline_seconds: float, folder: Path, notify: Notify
) -> ProcessPool[BuildJob, Artifact | BuildFailure]:
    _check_toolchains(toolchains)
    return builder_pool(tuple(toolchains), folder, size, deadline_seconds, notify)


def _make_worker(
    timed: Protocol,
    toolchains: Mapping[str, Toolchain],
    deadline_seconds: float,
    device_sku: str,
    name: str,
    _folder: Path,
    notify: Notify,
) -> ProcessPool[MeasureJob | FinalJob, Reading | FinalReading]:
    """A worker on the GPU that Ray has chosen for its actor.

    Raises:
        DeviceError: it is of another kind than the tasks.
        ToolchainMissing: another toolchain is installed than on the driver's machine.
    """
    _check_toolchains(toolchains)
    device = present_device()
    if device is None or device.sku != device_sku:
        raise DeviceError(f"its GPU is {device.sku if device else 'not to be seen'}, the tasks are of {device_sku}")
    return worker_pool(timed, tuple(toolchains), deadline_seconds, name=name, notify=notify)


def _check_toolchains(toolchains: Mapping[str, Toolchain]) -> None:
    for name, wanted in toolchains.items():
        here = registry.space(name).toolchain()
        if here != wanted:
            raise ToolchainMissing(f"it has {here.text} and the driver {wanted.text}: install the same on both")
