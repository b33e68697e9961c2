"""The connection to a Ray cluster: its nodes, its GPUs, and actors on them."""

import atexit
import contextlib
import ctypes
import logging
import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any
from unittest.mock import patch

# Ray prints ends of actors to the driver's standard output, whatever `log_to_driver` says, and a campaign's result goes
# there. It reads this pattern of lines to leave out when it is imported (docs.ray.io, log deduplication).
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")

import grpc
import ray
from ray._private import ray_constants
from ray._private.accelerators import NvidiaGPUAcceleratorManager
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gemmtune.engine.execution.ray.actor import JobActor, MakeWorker
from gemmtune.engine.execution.ray.actor_handle import description
from gemmtune.engine.io.blame import first_line
from gemmtune.engine.processes.process_pool import Notify, log_notice
from gemmtune.engine.processes.scratch import ScratchFolder
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError, UsageError
from gemmtune.engine.toolchain.gpu_info import present_device, why_no_gpu

_GPU_QUERY_SECONDS = 120.0
SAY_SECONDS, SAY_AGAIN_SECONDS = 5.0, 60.0
"""Wait for what others hold before a line says so, and between two such lines."""
_HEAD_SECONDS, _HEAD_LOOK_SECONDS = 10.0, 2.0
"""Silence of the head after which the cluster is lost, and time between two looks. Ray ends this process after 60 s."""
_SILENT_SECONDS = 2.0
"""Wait for a cluster before a person is told of it."""
_ANSWER_SECONDS = 8.0
"""Further wait for a cluster."""
_FURTHER_TRIES = 3
"""Connections asked for again where the server of ray:// started no process."""
_LONGEST_ADDRESS = 300
_NEEDED = ("gcs_server", "raylet")
"""Processes that a cluster cannot do without."""
_LONGEST_PARENT = 12
"""Characters of the path that a cluster's folder is in: the path of a Unix socket in it may have 107."""


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
    accelerator: str = ""
    """Kind of GPU by Ray's label `ray.io/accelerator-type`; empty where it has none."""

    def may_have(self, device: Device | None) -> bool:
        """Return whether the node has GPUs that may be of this model, or of any for None."""
        return bool(self.gpus) and self.accelerator in ("", label_of(device) if device else self.accelerator)


class Cluster:
    """A connection to a Ray cluster."""

    def __init__(self, address: str | None = None, cpus: int | None = None, notify: Notify = log_notice) -> None:
        """Connect to the cluster at an address, or to the one that runs here, or start one that ends with `close`.

        A cluster that is started listens on the loopback interface alone. The address is `ray://host:port` or
        `host:port`; a started cluster has `cpus` cores, by default all.

        Raises:
            UsageError: no Ray answers at the address, or the token's file is another user's.
        """
        self._opened = not ray.is_initialized()
        self._sessions: ScratchFolder | None = None
        if self._opened:
            # Ray puts the driver's working directory on each worker's path, and works in it: an empty folder makes no
            # module importable. It must exist as long as there are workers.
            self._empty = ScratchFolder()
            with contextlib.chdir(self._empty.name), _sigterm_kept():
                self._sessions = _connect(address, cpus, notify)
        self._notify = notify
        self._head = _HeadWatch(_head_address(address)) if self._sessions is None else None

    def nodes(self) -> list[Node]:
        """Return the machines of the cluster, in the order in which they joined."""
        return [
            Node(
                node["NodeID"],
                node["NodeManagerHostname"],
                int(node["Resources"].get("CPU", 0)),
                int(node["Resources"].get("GPU", 0)),
                node["Labels"].get("ray.io/accelerator-type", ""),
            )
            for node in ray.nodes()  # type: ignore[no-untyped-call]
            if node["Alive"]
        ]

    def devices(self, wanted: Device | None = None) -> list[Device]:
        """Return the models of the cluster's GPUs; `wanted` alone where a node's label says that it is there.

        It waits, and says so, while others hold the GPUs that must be asked.

        Raises:
            DeviceError: gemmtune can read no GPU of those that Ray has.
            UsageError: a node does not answer.
        """
        there = [node for node in self.nodes() if node.gpus]
        nodes = [node for node in there if node.may_have(wanted)]
        if there and not nodes:
            kinds = ", ".join(dict.fromkeys(node.accelerator for node in there))
            raise DeviceError(f"no GPU of the cluster is {wanted and wanted.sku}: by Ray's labels it has {kinds}")
        if wanted is not None and any(node.accelerator for node in nodes):
            return [wanted]
        query = ray.remote(_read_gpu)
        asked = {query.options(num_gpus=0.01, num_cpus=0, scheduling_strategy=_on(n)).remote(): n for n in nodes}
        self._await(list(asked))
        try:
            answers: list[Device | str] = ray.get(list(asked))
        except ray.exceptions.RayError as error:
            raise UsageError(f"the cluster's GPUs do not answer: {first_line(error)}") from None
        devices = list(dict.fromkeys(answer for answer in answers if isinstance(answer, Device)))
        if nodes and not devices:
            why = "; ".join(f"{node.host}: {answer}" for node, answer in zip(nodes, answers, strict=True))
            raise DeviceError(f"the cluster has {sum(n.gpus for n in nodes)} GPUs, and gemmtune can read none: {why}")
        return devices

    def _await(self, answers: list[Any]) -> None:
        """Wait for tasks that need a share of a GPU, without end while others hold all of them.

        Raises:
            UsageError: GPUs are free, and a node does not answer.
        """
        waited, every = 0.0, SAY_SECONDS
        while ray.wait(answers, num_returns=len(answers), timeout=every)[1] if answers else False:
            waited, every = waited + every, SAY_AGAIN_SECONDS
            if waited > _GPU_QUERY_SECONDS and _resources("available").get("GPU", 0) >= 1:
                raise UsageError(f"the cluster's GPUs do not answer in {waited:g} s")
            self._notify(f"waiting for a GPU of the cluster; {self.free()}")

    def has_room(self, cpus: float, gpus: float) -> bool:
        """Return whether nobody holds this many cores and GPUs of the cluster."""
        free = _resources("available")
        return free.get("CPU", 0) >= cpus and free.get("GPU", 0) >= gpus

    def free(self) -> str:
        """Return how many GPUs and cores of the cluster nobody holds, as text."""
        free, total = _resources("available"), _resources("cluster")
        gpus, cores = (f"{free.get(name, 0):g} of {total.get(name, 0):g}" for name in ("GPU", "CPU"))
        return f"{gpus} GPUs and {cores} cores are free"

    @property
    def answers(self) -> bool:
        """Whether the cluster's head answers now; Ray's calls wait for one that does not."""
        return self._head is None or self._head.look()

    def start(
        self, actor: type[JobActor], make_worker: MakeWorker[Any, Any], node: Node, cpus: float, gpus: float
    ) -> Any:  # noqa: ANN401 (an actor has no type)
        """Start an actor on a node, and again whenever it ends; it takes calls at once."""
        options = {"num_cpus": cpus, "num_gpus": gpus, "scheduling_strategy": _on(node), "max_restarts": -1}
        return ray.remote(actor).options(**options).remote(make_worker)

    def fault(self) -> str:
        """Return what the cluster has lost that it cannot do without; empty while it has all.

        Ray's calls wait a minute for a dead one, and then end this process.
        """
        if self._head is not None:
            silent = self._head.silent_seconds > _HEAD_SECONDS
            return f"head at {self._head.address} has not answered for {_HEAD_SECONDS:g} s" if silent else ""
        node: Any = ray._private.worker._global_node
        dead = node.dead_processes() if self._sessions is not None and node is not None else []
        return next((f"{name} ended" for name, _ in dead if name in _NEEDED), "")

    def close(self) -> None:
        """End the connection, and the cluster if it was started here."""
        fault = self.fault()
        if self._head is not None:
            self._head.ended.set()
        if self._opened:
            if fault:
                atexit.unregister(ray.shutdown)
                _skip_exit_handlers()
                node: Any = ray._private.worker._global_node
                if self._sessions is not None:
                    node.kill_all_processes(check_alive=False, allow_graceful=False)
            else:
                ray.shutdown()
            self._empty.cleanup()
            if self._sessions is not None:
                self._sessions.cleanup()


def label_of(device: Device) -> str:
    """Return Ray's label of a GPU model."""
    labels: Any = NvidiaGPUAcceleratorManager
    return str(labels._gpu_name_to_accelerator_type(device.name))


def _resources(which: str) -> dict[str, float]:
    """Return the cluster's resources: those that nobody holds (`available`), or all (`cluster`)."""
    found: dict[str, float] = getattr(ray, f"{which}_resources")()
    return found


class _HeadWatch(threading.Thread):
    """Looks whether the head of a cluster accepts connections, and ends with this process."""

    def __init__(self, address: str) -> None:
        """Start to look; `address` is `host:port`."""
        super().__init__(daemon=True)
        self.address = address
        self.ended = threading.Event()
        """Set to end the thread."""
        self._answered = time.monotonic()
        self.start()

    @property
    def silent_seconds(self) -> float:
        """Time since the head answered last, in seconds."""
        return time.monotonic() - self._answered

    def run(self) -> None:
        """Connect to the head every two seconds."""
        while not self.ended.wait(_HEAD_LOOK_SECONDS):
            self.look()

    def look(self) -> bool:
        """Return whether the head accepts a connection now."""
        host, _, port = self.address.rpartition(":")
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), _HEAD_LOOK_SECONDS):
            self._answered = time.monotonic()
            return True
        return False


def _head_address(address: str | None) -> str:
    """Return host and port of the head of the cluster that this process is connected to."""
    if address is not None and address.startswith("ray://"):
        return address.removeprefix("ray://")
    return str(ray.get_runtime_context().gcs_address)


def _read_gpu() -> Device | str:
    """Return the model of the first visible GPU, or why there is none to be read."""
    return present_device() or why_no_gpu()


@contextlib.contextmanager
def _sigterm_kept() -> Iterator[None]:
    """Restore the handler of SIGTERM, which ray.init replaces."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _connect(address: str | None, cpus: int | None, notify: Notify) -> ScratchFolder | None:
    """Connect to a cluster; return the folder of one that is started here."""
    init = partial(ray.init, log_to_driver=False, logging_level=logging.ERROR)
    _protect_token()
    found = _running_here(notify) if address in (None, "auto") else address
    if found in (None, "local"):
        # Ray opens its own folder to everybody, with the sockets of the cluster and the code that it runs: it gets one
        # within a folder that nobody else can enter.
        parent = os.environ.get("RAY_TMPDIR") or gettempdir()
        sessions = ScratchFolder(parent if len(parent) <= _LONGEST_PARENT else "/tmp")  # noqa: S108 (0700)
        try:
            with _private_umask(), patch.object(ray_constants, "ENABLE_RAY_CLUSTER", False):  # as on macOS: loopback
                init(address="local", num_cpus=cpus, include_dashboard=False, _temp_dir=f"{sessions.name}/r")
        except Exception as error:  # Ray raises this type where a process of its does not answer in time
            sessions.cleanup()
            raise UsageError(f"Ray starts no cluster here: {first_line(error)}; --fleet local needs none") from error
        return sessions
    _await_answer(found, notify)
    try:
        with warnings.catch_warnings(action="ignore"):  # the error repeats them
            _init_patiently(partial(init, address=found), notify)
    except ConnectionError as error:
        # A cluster that asks for a token answers a driver without one as if it was not there.
        way_out = "one that asks for a token needs RAY_AUTH_MODE=token, and its ~/.ray/auth_token here"
        raise UsageError(f"no Ray cluster answers at {found}: {description(error)}; {way_out}") from None
    return None


def _init_patiently(init: Callable[[], object], notify: Notify) -> None:
    """Connect, again where the server of ray:// could not start its process for this driver.

    It forks beside threads of gRPC, so its process may die on a busy host before it runs.
    """
    for _ in range(_FURTHER_TRIES):
        try:
            init()
            return
        except ConnectionAbortedError as error:
            notify(f"Ray's server started no process for this driver, asking again: {description(error)}")
    init()


def _await_answer(address: str, notify: Notify) -> None:
    """Raise a UsageError unless a server answers as Ray's do: ray.init waits minutes for another, deaf to Ctrl-C."""
    if ":" not in address or os.environ.get("RAY_USE_TLS") == "1":
        return  # a name that Ray resolves, or a handshake that needs Ray's certificates
    with grpc.insecure_channel(address.removeprefix("ray://"), options=[("grpc.enable_http_proxy", 0)]) as channel:
        answer = grpc.channel_ready_future(channel)
        try:
            with contextlib.suppress(grpc.FutureTimeoutError):
                answer.result(timeout=_SILENT_SECONDS)
                return
            notify(f"waiting up to {_ANSWER_SECONDS:g} s for the Ray cluster at {address}")
            answer.result(timeout=_ANSWER_SECONDS)
        except grpc.FutureTimeoutError:
            seconds = f"{_SILENT_SECONDS + _ANSWER_SECONDS:g} s"
            way_out = "RAY_ADDRESS=local with --fleet ray starts one on this machine"
            raise UsageError(f"no Ray cluster answers at {address} in {seconds}: {way_out}") from None
        finally:
            answer.cancel()


def _running_here(notify: Notify) -> str | None:
    """Return the address that `ray start` left, if something listens there: ray.init tries a dead one for minutes.

    Anybody may write the file, and its cluster runs code as this user: another user's file is ignored with a notice.
    """
    root = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 (Ray's own default)
    path = Path(root, "ray", "ray_current_cluster")
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as file:
            owner = os.fstat(file.fileno()).st_uid
            address = file.read(_LONGEST_ADDRESS).strip()
        if owner not in (0, os.getuid()):
            notify(f"{path} belongs to user {owner} and is ignored; --fleet ray://HOST:PORT connects to their cluster")
            return None
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=_SILENT_SECONDS).close()
    except (OSError, ValueError):
        return None
    return address


def _protect_token() -> None:
    """Make the token's file, which lets one run code, its owner's alone; raises UsageError if it is another user's."""
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    try:
        status = path.stat()
    except OSError:
        return  # Ray makes one, or says that it needs one
    if status.st_uid not in (0, os.getuid()):
        raise UsageError(f"{path} belongs to user {status.st_uid}, who could run code in the cluster: remove it")
    if status.st_uid == os.getuid() and status.st_mode & 0o077:
        path.chmod(0o600)


@contextlib.contextmanager
def _private_umask() -> Iterator[None]:
    """Create files for their owner alone; the processes of a cluster that is started inherit it."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _skip_exit_handlers() -> None:
    """Let this process end without C++'s exit handlers: Ray's waits for its lost cluster, and crashes."""
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)  # gets the exit status, after Python's handlers


def _on(node: Node) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node.id, soft=False)
