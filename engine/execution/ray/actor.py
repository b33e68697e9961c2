"""The actors of a cluster: each holds the killable processes of a local executor and runs jobs in them."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from gemmtune.engine.execution.dispatcher import Worker
from gemmtune.engine.execution.ray.artifact_transfer import artifacts_of, take_binary, with_binaries
from gemmtune.engine.processes.process_pool import Notify, Outcome, Waitable, wait_for_any
from gemmtune.engine.records.errors import GemmtuneError

__all__ = ["BuilderActor", "HostedWorker", "JobActor", "MakeWorker", "Reply", "WorkerActor"]

J = TypeVar("J")
R = TypeVar("R")

_POLL_SECONDS = 0.5
"""Longest wait before an actor looks for deadlines that passed."""


class HostedWorker(Worker[J, R], Waitable, Protocol[J, R]):
    """A worker that can be waited for, such as a `ProcessPool`."""


MakeWorker = Callable[[Path, Notify], HostedWorker[J, R]]
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


class JobActor:
    """A worker in an actor. Calls overlap: the next job arrives while the current one runs."""

    def __init__(self, make_worker: MakeWorker[object, object]) -> None:
        """Make the worker; if that fails, every reply says why."""
        self._folder = tempfile.TemporaryDirectory(prefix="gemmtune-")
        self._jobs: dict[int, tuple[object, asyncio.Future[Outcome[object, object] | None]]] = {}
        self._collecting: asyncio.Task[None] | None = None
        self._notices: list[str] = []
        self._lost = ""
        self._worker: HostedWorker[object, object] | None = None
        try:
            self._worker = make_worker(Path(self._folder.name), self._notices.append)
        except GemmtuneError as error:
            self._lost = str(error)

    async def begin(self) -> Reply:
        """Return the worker's size."""
        return self._reply(None)

    async def run(self, job: object, *contents: bytes) -> Reply:
        """Run a job.

        Args:
            job: a build, a measurement or a final, as the driver has it.
            contents: binary of each of its artifacts.
        """
        if self._worker is None:
            return self._reply(None)
        job = with_binaries(job, contents, Path(self._folder.name))
        future: asyncio.Future[Outcome[object, object] | None] = asyncio.get_running_loop().create_future()
        self._jobs[id(job)] = job, future
        self._worker.submit(job)
        if self._collecting is None or self._collecting.done():
            self._collecting = asyncio.create_task(self._collect(self._worker))
        outcome = await future
        for artifact in artifacts_of(job):
            if artifact.path:
                Path(artifact.path).unlink(missing_ok=True)
        return self._reply(outcome)

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
        content = take_binary(outcome.result)
        light = Outcome(None, outcome.result, outcome.loss, outcome.reason)  # the driver has the job
        return Reply(size, light, content, notices, self._lost)

    async def _collect(self, worker: HostedWorker[object, object]) -> None:
        """Pass outcomes to their calls until no job is left."""
        while True:
            self._collect_once(worker)
            if not self._jobs:
                return
            await asyncio.to_thread(wait_for_any, [worker], _POLL_SECONDS)

    def _collect_once(self, worker: HostedWorker[object, object]) -> None:
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
