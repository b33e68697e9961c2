"""The connection to a Ray cluster: its nodes, its GPUs, and actors on them."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

# Ray prints ends of actors to the driver's standard output, whatever `log_to_driver` says, and a campaign's result goes
# there. It reads this pattern of lines to leave out when it is imported (docs.ray.io, log deduplication).
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gemmtune.engine.execution.ray.actor import JobActor, MakeWorker
from gemmtune.engine.execution.ray.actor_handle import first_line
from gemmtune.engine.platform.gpu_info import present_device
from gemmtune.engine.processes.scratch import ScratchFolder
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UsageError

__all__ = ["Cluster", "Node"]

_GPU_QUERY_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of a cluster."""

    id: str
    """Ray's identifier; a machine that comes back gets another one."""
    host: str
    """Name of the machine."""
    cpus: int
    """Number of cores that Ray may use."""
    gpus: int
    """Number of GPUs that Ray may use."""


class Cluster:
    """A connection to a Ray cluster."""

    def __init__(self, address: str | None = None, cpus: int | None = None) -> None:
        """Connect to the cluster at an address, or to the one that runs here, or start one that ends with `close`.

        Args:
            address: `ray://host:port` or `host:port`; by default the cluster that runs on this machine.
            cpus: cores of a cluster that is started; by default all.

        Raises:
            UsageError: nothing answers at the address.
        """
        self._opened = not ray.is_initialized()
        if self._opened:
            # Ray puts the driver's working directory on each worker's path, and works in it: an empty folder makes no
            # module importable. It must exist as long as there are workers.
            self._empty = ScratchFolder()
            with contextlib.chdir(self._empty.name), _sigterm_kept():
                _connect(address, cpus)

    def nodes(self) -> list[Node]:
        """Return the machines of the cluster, in the order in which they joined."""
        return [
            Node(
                node["NodeID"],
                node["NodeManagerHostname"],
                int(node["Resources"].get("CPU", 0)),
                int(node["Resources"].get("GPU", 0)),
            )
            for node in ray.nodes()  # type: ignore[no-untyped-call]
            if node["Alive"]
        ]

    def devices(self) -> list[Device]:
        """Return the models of the cluster's GPUs.

        Raises:
            UsageError: a node does not answer.
        """
        query = ray.remote(present_device)
        answers = [
            query.options(num_gpus=0.01, num_cpus=0, scheduling_strategy=_on(node)).remote()
            for node in self.nodes()
            if node.gpus
        ]
        try:
            devices: list[Device | None] = ray.get(answers, timeout=_GPU_QUERY_SECONDS)
        except ray.exceptions.RayError as error:
            seconds = f"{_GPU_QUERY_SECONDS:g} s"
            raise UsageError(f"the cluster's GPUs do not answer in {seconds}: {first_line(error)}") from None
        return list(dict.fromkeys(device for device in devices if device is not None))

    def start(
        self, actor: type[JobActor], make_worker: MakeWorker[Any, Any], node: Node, cpus: float, gpus: float
    ) -> Any:  # noqa: ANN401 (an actor has no type)
        """Start an actor on a node, and again whenever it ends; it takes calls at once."""
        options = {"num_cpus": cpus, "num_gpus": gpus, "scheduling_strategy": _on(node), "max_restarts": -1}
        return ray.remote(actor).options(**options).remote(make_worker)

    def close(self) -> None:
        """End the connection, and the cluster if it was started here."""
        if self._opened:
            ray.shutdown()
            self._empty.cleanup()


@contextlib.contextmanager
def _sigterm_kept() -> Iterator[None]:
    """Restore the handler of SIGTERM, which ray.init replaces."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _connect(address: str | None, cpus: int | None) -> None:
    init = partial(ray.init, log_to_driver=False, logging_level=logging.ERROR)
    found = address or _running_here()
    if found is None:
        init(address="local", num_cpus=cpus, include_dashboard=False)
        return
    try:
        with warnings.catch_warnings(action="ignore"):  # the error repeats them
            init(address=found)
    except ConnectionError as error:
        # A cluster that asks for a token answers a driver without one as if it was not there.
        way_out = "one that asks for a token needs RAY_AUTH_MODE=token, and its ~/.ray/auth_token here"
        raise UsageError(f"no Ray cluster answers at {found}: {first_line(error)}; {way_out}") from None


def _running_here() -> str | None:
    """Return the address that `ray start` left, if something listens there: ray.init tries a dead one for minutes."""
    root = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 (Ray's own default)
    try:
        address = Path(root, "ray", "ray_current_cluster").read_text().strip()
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=2.0).close()
    except (OSError, ValueError):
        return None
    return address


def _on(node: Node) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node.id, soft=False)
