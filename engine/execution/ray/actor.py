"""The actors of a cluster: each holds the killable processes of a local executor and runs jobs in them.

Binaries travel with their jobs and results as bytes. Ray passes an argument or a result above 100 kB through its object
store.
"""

import asyncio
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gemmtune.engine.measure.jobs import FinalJob, MeasureJob
from gemmtune.engine.processes.process_pool import Notify, Outcome, ProcessPool, wait_for_any
from gemmtune.engine.processes.scratch import ScratchFolder
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.errors import GemmtuneError
from gemmtune.engine.toolchain.board_facts import BoardFacts, XidWatch, board_facts
from gemmtune.engine.toolchain.gpu_info import visible_board

T = TypeVar("T")
J = TypeVar("J")
R = TypeVar("R")

_POLL_SECONDS = 0.5
"""Longest wait before an actor looks for deadlines that passed."""

MakeWorker = Callable[[Path, Notify], ProcessPool[J, R]]
"""Makes the worker in its actor, given a folder of its own; picklable."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer of an actor to one call."""

    size: int
    """Jobs that the actor runs at a time."""
    outcome: Outcome[None, object] | None = None
    """Outcome of the call's job, without the job; None if the worker was lost before."""
    content: bytes = b""
    """Binary of the artifact in the outcome."""
    notices: tuple[str, ...] = ()
    """Lines that a person should read."""
    lost: str = ""
    """Why the worker takes no jobs any more; empty while it does."""
    board: BoardFacts | None = None
    """Facts of the GPU, in the first reply of its worker; None of a builder."""


class JobActor:
    """A worker in an actor. Calls overlap: the next job arrives while the current one runs."""

    def __init__(self, make_worker: MakeWorker[object, object]) -> None:
        """Make the worker; if that fails, every reply says why."""
        self._folder = ScratchFolder()
        self._jobs: dict[int, tuple[object, asyncio.Future[Outcome[object, object] | None]]] = {}
        self._collecting: asyncio.Task[None] | None = None
        self._notices: list[str] = []
        self._lost = ""
        self._worker: ProcessPool[object, object] | None = None
        try:
            self._worker = make_worker(Path(self._folder.name), self._notices.append)
        except GemmtuneError as error:
            self._lost = str(error)

    async def begin(self) -> Reply:
        """Return the worker's size, and what its GPU says of itself."""
        return replace(self._reply(None), board=None if self._lost else self.board())

    def board(self) -> BoardFacts | None:
        """Return the facts of the worker's GPU; None of one that uses no GPU."""
        return None

    async def run(self, packed: bytes) -> Reply:
        """Run a job that `pack_job` packed."""
        if self._worker is None:
            return self._reply(None)
        with tempfile.TemporaryDirectory(dir=self._folder.name) as folder:
            job = unpack_job(packed, Path(folder))
            future: asyncio.Future[Outcome[object, object] | None] = asyncio.get_running_loop().create_future()
            self._jobs[id(job)] = job, future
            self._worker.submit(job)
            if self._collecting is None or self._collecting.done():
                self._collecting = asyncio.create_task(self._collect(self._worker))
            return self._reply(await future)

    async def close(self) -> None:
        """End the processes and delete the folder."""
        if self._worker is not None:
            self._worker.close()
        self._folder.cleanup()

    def _reply(self, outcome: Outcome[object, object] | None) -> Reply:
        notices, size = tuple(self._notices), self._worker.size if self._worker else 0
        self._notices.clear()
        if outcome is None:
            return Reply(size, notices=notices, lost=self._lost)
        light = Outcome(None, outcome.result, outcome.loss, outcome.reason)  # the driver has the job
        return Reply(size, light, take_binary(outcome.result), notices, self._lost)

    async def _collect(self, worker: ProcessPool[object, object]) -> None:
        """Pass outcomes to their calls until no job is left."""
        while True:
            self._collect_once(worker)
            if not self._jobs:
                return
            await asyncio.to_thread(wait_for_any, [worker], _POLL_SECONDS)

    def _collect_once(self, worker: ProcessPool[object, object]) -> None:
        try:
            outcomes = worker.collect()
        except GemmtuneError as error:
            if worker.size:
                self._notices.append(str(error))
                return
            self._lost = str(error)
            for _, future in self._jobs.values():
                future.set_result(None)
            self._jobs.clear()
            return
        for outcome in outcomes:
            _, future = self._jobs.pop(id(outcome.job))
            future.set_result(outcome)


class BuilderActor(JobActor):
    """An actor of builders, under the name that Ray and `ps` show."""


class WorkerActor(JobActor):
    """An actor of a GPU worker, under the name that Ray and `ps` show."""

    _xids: XidWatch | None = None

    def board(self) -> BoardFacts | None:
        """Return the facts of the GPU that Ray chose; its errors are noticed from now on."""
        facts = board_facts(visible_board())
        if facts is not None:
            self._xids = XidWatch([facts.uuid])
            self._notices += facts.faults
        return facts

    def _reply(self, outcome: Outcome[object, object] | None) -> Reply:
        self._notices += self._xids.lines() if self._xids else []
        return super()._reply(outcome)


def pack_job(job: object) -> bytes:
    """Return a job with the binaries of its artifacts, pickled.

    Ray would pickle the job in Python code, which costs the driver several times as much.
    """
    paths = [each.artifact.path for each in _measurements(job)]
    return pickle.dumps((job, [Path(path).read_bytes() if path else b"" for path in paths]))


def unpack_job(packed: bytes, folder: Path) -> object:
    """Return a packed job, with each binary in a new file of `folder`."""
    job, contents = pickle.loads(packed)  # noqa: S301 (the driver made it)
    pairs = zip(_measurements(job), contents, strict=True)
    loaded = tuple(replace(each, artifact=with_binary(each.artifact, content, folder)) for each, content in pairs)
    if isinstance(job, FinalJob):
        return FinalJob(loaded)
    return loaded[0] if loaded else job


def take_binary(result: object) -> bytes:
    """Return the binary of a builder's result and delete its file; empty if the result has none."""
    if not isinstance(result, Artifact) or not result.path:
        return b""
    path = Path(result.path)
    content = path.read_bytes()
    path.unlink()
    return content


def with_binary(result: T, content: bytes, folder: Path) -> T | Artifact:
    """Return an artifact whose binary is in a new file of `folder`; any other result is returned unchanged."""
    if not isinstance(result, Artifact) or not result.path:
        return result
    with tempfile.NamedTemporaryFile(dir=folder, suffix=Path(result.path).suffix, delete=False) as file:
        file.write(content)
    return replace(result, path=file.name)


def _measurements(job: object) -> tuple[MeasureJob, ...]:
    """Return the measurements that a job of a GPU worker consists of; a build has none."""
    if isinstance(job, FinalJob):
        return job.finalists
    return (job,) if isinstance(job, MeasureJob) else ()
