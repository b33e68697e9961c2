"""A connection to Ray; the one module that imports ray."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import tempfile
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

# Ray tells of actors that end on the driver's standard output, whatever `log_to_driver` says (seen in 2.60): that is
# where a campaign's result goes, and its notices tell the same. It reads this pattern of lines to leave out when it is
# imported (docs.ray.io, Configuring Logging, log deduplication).
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gemmtune.engine.execution.ray.actor import Host, MakePlace, Reply
from gemmtune.engine.execution.ray.actor_handle import Heard
from gemmtune.engine.platform.gpu_info import present_device
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UsageError

__all__ = ["Cluster", "Node"]

_ASK_SECONDS = 120.0
_END_SECONDS = 5.0
_MOST_BYTES = 2**28
"""Binaries that the object store is asked to hold: those that a node which has them need not be sent again."""


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of a cluster."""

    id: str
    """Ray's; a machine that comes back has another one."""
    host: str
    """Its name."""
    cpus: int
    """Cores that Ray may use."""
    gpus: int
    """GPUs."""


class Cluster:
    """The cluster of an address; without one, that which runs here, or else one that is started and ends with this."""

    def __init__(self, address: str | None = None, cpus: int | None = None) -> None:
        """Connect, or start one.

        Args:
            address: `ray://host:port` or `host:port`; by default the cluster that runs on this machine.
            cpus: cores of a cluster that is started; by default all.

        Raises:
            UsageError: nothing answers at the address.
        """
        self._opened = not ray.is_initialized()
        if self._opened:
            # Every worker puts the driver's working directory on its path: from an empty one it imports nothing. It
            # also works in it, so the folder stays for as long as there are workers.
            self._empty = tempfile.TemporaryDirectory(prefix="gemmtune-")
            with contextlib.chdir(self._empty.name), _signals_kept():
                _connect(address, cpus)
        self._binaries: OrderedDict[str, tuple[Any, int]] = OrderedDict()
        self._made: dict[int, tuple[object, Any]] = {}

    def nodes(self) -> list[Node]:
        """The machines that are there, in the order in which they came."""
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
        """The kinds of GPU there are, one a node that has any and can name it.

        Raises:
            UsageError: a node does not answer.
        """
        ask = ray.remote(present_device)
        asked = [
            ask.options(num_gpus=0.01, num_cpus=0, scheduling_strategy=_on(node)).remote()
            for node in self.nodes()
            if node.gpus
        ]
        try:
            devices: list[Device | None] = ray.get(asked, timeout=_ASK_SECONDS)
        except ray.exceptions.RayError as error:
            raise UsageError(f"the cluster's GPUs do not answer in {_ASK_SECONDS:g} s: {_first_line(error)}") from None
        return list(dict.fromkeys(device for device in devices if device is not None))

    def start(
        self, host: type[Host], make_place: MakePlace[Any, Any], node: Node, cpus: float, gpus: float
    ) -> _RayActor:
        """Start a host on a node; it takes calls at once, and answers when it is there."""
        if id(make_place) not in self._made:  # sent once, however many actors make it
            self._made[id(make_place)] = make_place, ray.put(make_place)
        options = {"num_cpus": cpus, "num_gpus": gpus, "scheduling_strategy": _on(node), "max_restarts": 0}
        return _RayActor(ray.remote(host).options(**options).remote(self._made[id(make_place)][1]), self._put)

    def close(self) -> None:
        """End the connection, and a cluster that was started for it."""
        self._binaries.clear()
        self._made.clear()
        if self._opened:
            ray.shutdown()
            self._empty.cleanup()

    def _put(self, digest: str, path: str) -> Any:  # noqa: ANN401 (an ObjectRef, or the client's own)
        """The binary in the object store, which takes it to each node once."""
        if digest in self._binaries:
            self._binaries.move_to_end(digest)
        else:
            content = Path(path).read_bytes()
            self._binaries[digest] = ray.put(content), len(content)
            while sum(size for _, size in self._binaries.values()) > _MOST_BYTES:
                self._binaries.popitem(last=False)
        return self._binaries[digest][0]


class _RayActor:
    def __init__(self, handle: Any, put: Callable[[str, str], Any]) -> None:  # noqa: ANN401 (an actor has no type)
        self._handle = handle
        self._put = put

    def begin(self, heard: Heard) -> None:
        _listen(self._handle.begin.remote(), heard)

    def run(self, jobs: Sequence[object], files: dict[str, str], heard: Heard) -> None:
        contents = [self._put(digest, path) for digest, path in files.items()]
        _listen(self._handle.run.remote(jobs, tuple(files), *contents), heard)

    def end(self, *, began: bool) -> None:
        if began:
            with contextlib.suppress(ray.exceptions.RayError):  # it may be gone already, and its node too
                ray.get(self._handle.close.remote(), timeout=_END_SECONDS)
        ray.kill(self._handle)


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Leave a polite kill to who handles it: ray.init takes SIGTERM for itself."""
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
        with warnings.catch_warnings(action="ignore"):  # the error says it
            init(address=found)
    except ConnectionError as error:
        # What asks for a token says no more to who has none than what is not there (seen in 2.60).
        way_out = "one that asks for a token needs RAY_AUTH_MODE=token, and its ~/.ray/auth_token here"
        raise UsageError(f"no Ray cluster answers at {found}: {_first_line(error)}; {way_out}") from None


def _running_here() -> str | None:
    """The address that `ray start` left, where something listens: at a dead one, ray.init tries for minutes."""
    root = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 (where Ray leaves it)
    try:
        address = Path(root, "ray", "ray_current_cluster").read_text().strip()
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=2.0).close()
    except (OSError, ValueError):
        return None
    return address


def _on(node: Node) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node.id, soft=False)


def _listen(reference: Any, heard: Heard) -> None:  # noqa: ANN401 (as above)
    def over(future: Future[Reply]) -> None:
        error = future.exception()
        heard(future.result() if error is None else _how(error))

    reference.future().add_done_callback(over)


def _how(error: BaseException) -> str:
    """What an actor died of: what it raised, where it did; else what Ray says."""
    lines = str(error).splitlines()
    raised = any(line.lstrip().startswith('File "') for line in lines)
    return lines[-1][:300] if raised else _first_line(error)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"[:300]
