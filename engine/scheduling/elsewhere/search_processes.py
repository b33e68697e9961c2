"""Run searches in processes of their own, so that a campaign's driver goes on while samplers learn and propose."""

import contextlib
import math
import pickle
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from gemmtune.engine.processes.child_process import NO_GPU, ChildProcess, Event, start_context
from gemmtune.engine.processes.process_pool import Notify, log_notice
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.search import SourceTask
from gemmtune.engine.scheduling.task_search import Answer, TaskSearch
from gemmtune.engine.search.samplers.exhaustive import ExhaustiveSampler

_DEADLINE_SECONDS = 300.0  # of the start, and of one turn
_LOOK_SECONDS = 0.005  # between two looks for answers
_WAIT_SECONDS = 1.0  # between two looks whether a process that is waited for has ended
_OWN = "gemmtune"
"""Package whose spaces and samplers are found by name in every process."""
_IMPORTS = ("scipy.linalg.lapack", "scipy.special", "sklearn.ensemble", f"{_OWN}.engine.search.samplers.transfer")
"""Modules that samplers which learn need, and that load for seconds."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """Work on one search: begin it or tell it the outcomes of its batch, then ask for the next one."""

    number: int
    """Number of the search in its process."""
    outcomes: tuple[tuple[Status, float | None, tuple[float, ...]], ...] = ()
    """Status, score and scores of the batch's configs, in their order."""
    terms: bytes = b""
    """Pickled arguments of a search that begins."""
    history: int = 0
    """Number of the history that a search begins with."""
    sources: bytes = b""
    """That history, pickled, where it is new to the process."""
    dropped: tuple[int, ...] = ()
    """Numbers of searches that have ended."""


class _Searches:
    """Searches of one process, by number, each with its last batch."""

    def __init__(self) -> None:
        self._searches: dict[int, tuple[TaskSearch, list[Config]]] = {}
        self._histories: dict[int, tuple[SourceTask, ...]] = {}

    def __call__(self, turn: _Turn) -> Answer | None:
        for number in turn.dropped:
            self._searches.pop(number, None)
        try:
            if turn.sources:
                self._histories[turn.history] = pickle.loads(turn.sources)  # noqa: S301 (written by the parent)
            if turn.terms:
                terms, history = pickle.loads(turn.terms), self._histories[turn.history]  # noqa: S301 (likewise)
                search = TaskSearch(**terms, history=lambda task: history)
            else:
                search, asked = self._searches.pop(turn.number)
                search.tell([Trial(config, *told) for config, told in zip(asked, turn.outcomes, strict=True)])
            batch = search.next_batch()
        except Exception:
            return None  # the search goes on in the driver, where it fails with the name of who is to blame
        self._searches[turn.number] = search, batch
        return Answer(tuple(batch), search.feasible, search.notice)


class SearchProcesses:
    """Processes that run searches, each several.

    A search there asks for what it would ask for here: its batches depend on its terms and its trials alone. One whose
    process ends goes on here.
    """

    def __init__(self, size: int, notify: Notify = log_notice) -> None:
        """Have so many processes, which start with the first search; 0 to run every search here.

        `notify` receives a line per process that ends before it is closed.
        """
        self._size, self._notify = size, notify
        self._processes: list[_Process] = []
        self._histories: dict[int, tuple[int, tuple[SourceTask, ...]]] = {}  # by identity, which must not be reused

    def begin(self, search: TaskSearch) -> "RemoteSearch | None":
        """Begin a search in the process with the fewest searches; None where it must run here.

        Searches of plug-ins run here, and so do those that travel to no other process.
        """
        kinds = search.sampler, type(search.space)
        is_own = all(kind.__module__.partition(".")[0] == _OWN for kind in kinds)
        if not is_own or search.sampler is ExhaustiveSampler:
            return None
        self._processes = self._processes or [
            _Process(self._notify, learns=search.sampler.learns) for _ in range(self._size)
        ]
        living = [each for each in self._processes if not each.is_lost]
        if not living:
            return None
        process = min(living, key=lambda each: len(each.searches))
        history = search.history(search.task)
        number, _ = self._histories.setdefault(id(history), (len(self._histories) + 1, history))
        try:
            terms = pickle.dumps(search.terms)
            sources = b"" if number in process.histories else pickle.dumps(history)
        except (pickle.PicklingError, AttributeError, TypeError):  # a landscape's features may be a local function
            return None
        process.histories.add(number)
        return RemoteSearch(process, _Turn(next(process.numbers), terms=terms, history=number, sources=sources))

    def close(self) -> None:
        """End every process and the searches in it; call it once, at the campaign's end."""
        for process in self._processes:
            process.close()


class _Process:
    """One process, with the searches that it has."""

    def __init__(self, notify: Notify, *, learns: bool) -> None:
        self.searches: dict[int, RemoteSearch] = {}
        self.histories: set[int] = set()
        self.numbers = count(1)
        self.dropped: list[int] = []
        self.is_lost = False
        self._notify = notify
        self._looked = 0.0
        self._queue: deque[_Turn] = deque()
        self._at_work = 0  # number of the search whose turn it is
        self._is_idle = False
        self._deadline = time.monotonic() + _DEADLINE_SECONDS
        self._child = ChildProcess(start_context((), NO_GPU), _IMPORTS if learns else (), _Searches, NO_GPU)
        self._child.begin()

    def submit(self, turn: _Turn) -> None:
        """Queue a search's next turn."""
        self._queue.append(replace(turn, dropped=tuple(self.dropped)))
        self.dropped.clear()
        self._send()

    def look(self) -> None:
        """Hand out the answers that are there, now and then; a process that ended took all its searches with it."""
        if time.monotonic() < self._looked + _LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        while not self.is_lost and (message := self._child.receive()) is not None:
            match message:
                case ((Event.CANNOT_START | Event.ENDED), how):
                    self._give_up(f"ended ({how})")
                case Event.READY, _:
                    self._send_next()
                case Event.FINISHED, answer:
                    self._hand_out(answer if isinstance(answer, Answer) else None)
                    self._send_next()
        if not self.is_lost and time.monotonic() > self._deadline:
            self._give_up(f"did not answer for {_DEADLINE_SECONDS:g} s")

    def wait(self) -> None:
        """Wait a moment for an answer."""
        self._child.connection.poll(_WAIT_SECONDS)

    def close(self) -> None:
        """End the process; its searches go on here."""
        if self.is_lost:
            return
        self.is_lost = True
        for search in self.searches.values():
            search.is_lost = True
        self.searches.clear()
        self._child.end()

    def _hand_out(self, answer: Answer | None) -> None:
        """Give a search its answer; None for one that must go on here."""
        if (search := self.searches.get(self._at_work)) is not None:
            search.answer, search.is_lost = answer, answer is None
            if answer is None:
                del self.searches[self._at_work]

    def _send_next(self) -> None:
        """Send the next turn, now that the process has nothing to do."""
        self._is_idle, self._deadline = True, math.inf
        self._send()

    def _send(self) -> None:
        """Send a turn if the process is idle: it reads nothing while it works."""
        if not (self._is_idle and self._queue):
            return
        turn = self._queue.popleft()
        self._is_idle, self._at_work, self._deadline = False, turn.number, time.monotonic() + _DEADLINE_SECONDS
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # an ended process: `look` finds it
            self._child.connection.send(turn)

    def _give_up(self, how: str) -> None:
        """Say how the process was lost, and end it."""
        self._notify(f"a process that ran searches {how}; the campaign's own process goes on with them")
        self.close()


class RemoteSearch:
    """A search in another process, which works on the next batch as soon as it is told of the last one."""

    def __init__(self, process: _Process, first: _Turn) -> None:
        """Begin the search there."""
        self.answer: Answer | None = None
        """Next batch; None while the process works on it."""
        self.is_lost = False
        """Whether the search must go on here."""
        self._process, self._number = process, first.number
        process.searches[first.number] = self
        process.submit(first)

    @property
    def is_thinking(self) -> bool:
        """Whether the next batch is not there yet."""
        if self.answer is None and not self.is_lost:
            self._process.look()
        return self.answer is None and not self.is_lost

    def next(self) -> Answer | None:
        """Return the next batch, which is waited for; None if the search must go on here."""
        while self.is_thinking:
            self._process.wait()
        return None if self.is_lost else self.answer

    def tell(self, trials: Sequence[Trial]) -> None:
        """Send the outcomes of the batch."""
        self.answer = None
        if not self.is_lost:
            told = tuple((trial.status, trial.score, trial.scores) for trial in trials)
            self._process.submit(_Turn(self._number, told))

    def close(self) -> None:
        """Drop the search; its process does so with its next turn."""
        if self._process.searches.pop(self._number, None) is not None:
            self._process.dropped.append(self._number)
