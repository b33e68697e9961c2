"""What an actor does: it holds the same killable processes as an executor of one machine, and hands them jobs."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from gemmtune.engine.execution.dispatcher import Place
from gemmtune.engine.execution.ray.artifact_transfer import Cellar, packed
from gemmtune.engine.processes.process_pool import Notify, Outcome, Waitable, wait_for_any
from gemmtune.engine.records.errors import GemmtuneError

__all__ = ["Builder", "Host", "HostedPlace", "MakePlace", "Reply", "Worker"]

J = TypeVar("J")
R = TypeVar("R")

_LOOK_SECONDS = 0.5
"""Between two looks at processes that say nothing: a deadline may have passed."""


class HostedPlace(Place[J, R], Waitable, Protocol[J, R]):
    """A place that can be waited for; a `ProcessPool` is one."""


MakePlace = Callable[[Path, Notify], HostedPlace[J, R]]
"""Makes the place in its actor, in a folder of its own; picklable."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What an actor says."""

    size: int
    """Jobs it runs at a time."""
    outcomes: tuple[Outcome[None, object] | None, ...] = ()
    """One a job of the call, in its order, without the job and with the artifact packed; None where the place was lost
    before."""
    notices: tuple[str, ...] = ()
    """What a person should hear of."""
    lost: str = ""
    """Why the place takes no jobs any more; empty while it does."""


class Host:
    """One place in a process of its own. Calls overlap: a job may be sent while another one runs."""

    def __init__(self, make_place: MakePlace[object, object]) -> None:
        """Make the place; one that cannot be made is lost from the start."""
        self._folder = tempfile.TemporaryDirectory(prefix="gemmtune-")
        folder = Path(self._folder.name)
        (folder / "sent").mkdir()
        self._cellar = Cellar(folder / "sent")
        self._waiting: dict[int, tuple[object, asyncio.Future[Outcome[object, object] | None]]] = {}
        self._hearing: asyncio.Task[None] | None = None
        self._notices: list[str] = []
        self._lost = ""
        self._place: HostedPlace[object, object] | None = None
        try:
            self._place = make_place(folder, self._notices.append)
        except GemmtuneError as error:
            self._lost = str(error)

    async def begin(self) -> Reply:
        """Say that it is there."""
        return self._reply(())

    async def run(self, jobs: Sequence[object], digests: Sequence[str], *contents: bytes) -> Reply:
        """Run some jobs; they are over together.

        Args:
            jobs: as the driver has them.
            digests: of the binaries they need.
            contents: of these binaries.
        """
        if self._place is None:
            return self._reply((None,) * len(jobs))
        sent: Mapping[str, bytes] = dict(zip(digests, contents, strict=True))
        over = []
        for job in jobs:
            placed = self._cellar.place(job, sent)
            future: asyncio.Future[Outcome[object, object] | None] = asyncio.get_running_loop().create_future()
            self._waiting[id(placed)] = placed, future
            over.append(future)
            self._place.submit(placed)
        if self._hearing is None or self._hearing.done():
            self._hearing = asyncio.create_task(self._hear(self._place))
        outcomes = [await future for future in over]
        return self._reply(tuple(_light(outcome) for outcome in outcomes))

    async def close(self) -> None:
        """End the processes, and delete the folder."""
        if self._place is not None:
            self._place.close()
        self._folder.cleanup()

    def _reply(self, outcomes: tuple[Outcome[None, object] | None, ...]) -> Reply:
        notices = tuple(self._notices)
        self._notices.clear()
        return Reply(self._place.size if self._place else 0, outcomes, notices, self._lost)

    async def _hear(self, place: HostedPlace[object, object]) -> None:
        """Tell each call of its jobs' outcomes, for as long as there are any to come."""
        while True:
            self._hear_once(place)
            if not self._waiting:
                return
            await asyncio.to_thread(wait_for_any, [place], _LOOK_SECONDS)

    def _hear_once(self, place: HostedPlace[object, object]) -> None:
        try:
            outcomes = place.collect()
        except GemmtuneError as error:
            if place.size:
                self._notices.append(str(error))
                return
            self._lost = str(error)
            for _, future in self._waiting.values():
                future.set_result(None)
            self._waiting.clear()
            return
        for outcome in outcomes:
            _, future = self._waiting.pop(id(outcome.job))
            future.set_result(outcome)


class Builder(Host):
    """A host of builders, by the name that Ray's lists and `ps` show."""


class Worker(Host):
    """A host of a worker, by the name that Ray's lists and `ps` show."""


def _light(outcome: Outcome[object, object] | None) -> Outcome[None, object] | None:
    """An outcome without its job, which the driver has, and with its file."""
    if outcome is None:
        return None
    return Outcome(None, packed(outcome.result), outcome.loss, outcome.reason)
