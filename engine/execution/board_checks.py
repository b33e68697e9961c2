"""Compares the boards of a campaign by canaries: configs that each of them times again now and then.

A canary's time over the reference kernel's is equal on all boards of one kind, however fast they are. A board whose
ratio differs is off. Boards that differ do not say which ones are wrong: the vendor library's own kernel does, since
its time is close to the reference kernel's.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, inf, log
from statistics import median
from time import monotonic

from gemmtune.engine.measure.jobs import MeasureJob, Reading
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.verdict import BoardVerdict, Trust

_CANARIES = 3
"""Configs that a check times, of one problem where it has them. Chosen: a board that errs at random agrees thrice by
chance once in thousands of checks."""
_NAMED, _QUARANTINED = 0.05, 0.15
"""Differences of a board's times, as a fraction, from which it is named and from which it measures no more."""
_BAD_CHECKS, _MOST_REPEATS = 2, 4
"""Checks that must differ by `_QUARANTINED`, as one may by chance, and repeats, at most, that look for the others."""
_FIRST_RESULTS, _MOST_RESULTS = 64, 1024
"""Results of a board between two checks, doubled by each that finds nothing. Chosen: less than 5 % of its time."""
_IDLE_SECONDS = 10.0
"""Time without a job after which a board is checked that has results since its last check."""

_Ratios = dict[int, float | None]
"""Logarithm of each canary's time over the reference kernel's, by the canary's number; None for a failure."""


@dataclass(slots=True)
class _Board:
    """A worker's board, with its last check."""

    uuid: str
    since: str
    """Begin of the last check that vouched for it; time of its first result before there is one."""
    is_vouched: bool = False
    trust: Trust = Trust.SEEN
    interval: int = _FIRST_RESULTS
    results: int = 0
    """Results since the last check began."""
    due: bool = True
    busy_at: float = field(default_factory=monotonic)
    """Last time at which its worker had a job, in seconds of a monotonic clock."""
    began: str = ""
    """Begin of the check under way."""
    checked: str = ""
    """Begin of the last whole check."""
    running: set[int] = field(default_factory=set)
    """Numbers of the canaries that it is timing."""
    fresh: _Ratios = field(default_factory=dict)
    """Ratios of the check under way."""
    ratios: _Ratios = field(default_factory=dict)
    """Ratios of the last whole check."""
    vouched: _Ratios = field(default_factory=dict)
    """Ratios of the last check that vouched for it; on a board that is alone, of its first check."""
    reason: str = ""
    """Why a canary failed."""
    judged: _Ratios = field(default_factory=dict)
    """Ratios that `bad` and `repeats` count already."""
    bad: int = 0
    """Checks that differed by `_QUARANTINED`, since the last one that found nothing."""
    repeats: int = 0
    """Checks since the first that found something, however little: a board that errs at random may differ by little."""


class BoardChecks:
    """The boards of a campaign, their canaries and their checks; it decides, and runs nothing itself."""

    def __init__(self, now: Callable[[], str]) -> None:
        """Know no board and no canary yet; `now` returns the UTC time, ISO 8601 with seconds."""
        self._now = now
        self._boards: dict[str, _Board] = {}  # by worker
        self._canaries: list[MeasureJob] = []
        self._stored: dict[str, _Ratios] = {}  # ratios of earlier measurements, by their boards
        self._sent: dict[int, tuple[str, int, MeasureJob]] = {}  # worker and canary's number, by the job's identity

    def board(self, worker: str) -> str:
        """Return the UUID of a worker's board; the worker's name while it is not known."""
        return (self._boards[worker].uuid if worker in self._boards else "") or worker

    def is_quarantined(self, worker: str) -> bool:
        """Return whether nothing of a worker counts."""
        return worker in self._boards and self._boards[worker].trust is Trust.QUARANTINED

    def is_unproven(self, worker: str) -> bool:
        """Return whether no check has compared a worker's board with others yet, or a bad one is being repeated."""
        if (board := self._boards.get(worker)) is None:
            return True
        if len(self._canaries) < _CANARIES and self._is_late():
            return False  # nothing that was measured is steady enough to compare boards by
        is_repeated = bool(board.repeats) and (board.due or bool(board.running))
        return is_repeated or not (board.judged or board.vouched)

    def add_result(self, worker: str, uuid: str) -> Iterator[BoardVerdict]:
        """Count a result of a worker, and yield that its board is known now; `uuid` may be empty."""
        if (board := self._boards.get(worker)) is None:
            board = self._boards[worker] = _Board("", self._now())
        board.results += 1
        if uuid not in ("", board.uuid):
            board.uuid = uuid
            yield self._verdict(worker, Trust.SEEN, "")
            if any(b.uuid == uuid and b.trust is Trust.QUARANTINED for b in self._boards.values()):
                yield from self._name(worker, Trust.QUARANTINED, "it is quarantined already, and came back")

    def suspect(self, worker: str) -> None:
        """Check a worker's board next, because another board contradicted it."""
        if worker in self._boards:
            self._boards[worker].due = True

    def wants(self, job: MeasureJob, reading: Reading) -> bool:
        """Return whether a config that was measured is to be a canary."""
        if reading.estimate is None or not reading.estimate.is_steady or len(self._canaries) == _CANARIES:
            return False
        known = {(canary.task, canary.config) for canary in self._canaries}
        problems = {canary.task.problem for canary in self._canaries} or {job.task.problem}
        has_vendor = job.task.is_baseline or any(canary.task.is_baseline for canary in self._canaries)
        fits = self._is_late() or (job.task.problem in problems and (has_vendor or len(known) < _CANARIES - 1))
        return fits and (job.task, job.config) not in known

    def _is_late(self) -> bool:
        return sum(board.results for board in self._boards.values()) > _FIRST_RESULTS

    def add_canary(self, job: MeasureJob, stored: Measurement | None = None) -> None:
        """Let every board time this job's config, whose binary nobody deletes; `stored` is its earlier measurement."""
        if stored is not None and stored.estimate is not None and (level := stored.estimate.level) is not None:
            where = f"{level.board} on {stored.created_at[:10]}"
            self._stored.setdefault(where, {})[len(self._canaries)] = log(stored.estimate.time_ns / level.time_ns)
        self._canaries.append(replace(job, leader=None, early_stopping=False))

    def start(self, live: Mapping[str, bool], *, ends: bool = False) -> Iterator[tuple[str, MeasureJob]]:
        """Yield workers and canaries to time, for the boards whose check is due; `ends`: for all that need one.

        `live` says of each worker whether it is busy: one that has been idle for a while may be released next.
        """
        if len(self._canaries) < _CANARIES and not ends:
            return
        trusted = self._trusted(live)
        for worker, board in trusted.items():
            due = board.due or board.results >= board.interval
            if live[worker]:
                board.busy_at = monotonic()
            idle = ends or monotonic() - board.busy_at > _IDLE_SECONDS
            due = due or (idle and board.results > 0 and len(trusted) + len(self._stored) > 1)
            if board.running or not due:
                continue
            board.began, board.results, board.due, board.fresh = self._now(), 0, False, {}
            board.running = set(range(len(self._canaries)))
            for number in range(len(self._canaries)):
                job = replace(self._canaries[number])
                self._sent[id(job)] = worker, number, job
                yield worker, job

    def is_running(self, live: Collection[str]) -> bool:
        """Return whether a live worker times canaries."""
        return any(board.running for worker, board in self._boards.items() if worker in live)

    def is_canary(self, job: object) -> bool:
        """Return whether a job is a canary that `start` yielded."""
        return id(job) in self._sent

    def add_canary_result(
        self, job: MeasureJob, worker: str, reading: Reading, live: Collection[str]
    ) -> Iterator[BoardVerdict]:
        """Take a canary's result, and yield what it says of the boards once no first check of a live one is missing."""
        sent_to, number, _ = self._sent.pop(id(job))
        board = self._boards[sent_to]
        if worker != sent_to or number not in board.running:
            return  # its board was lost meanwhile
        board.running.discard(number)
        board.fresh[number] = _ratio(reading)
        if board.fresh[number] is None:
            board.reason = f"{reading.status}: {reading.reason}"
        if board.running:
            return
        board.ratios, board.checked = board.fresh, board.began
        trusted = self._trusted(live)
        if all(each.ratios for each in trusted.values()):
            for _ in range(2):  # again without those that are quarantined now: they may have spoken against good ones
                for name in self._trusted(live):
                    yield from self._judge(name)

    def _trusted(self, live: Collection[str]) -> dict[str, _Board]:
        """Return the boards of these workers, by worker, without quarantined ones."""
        return {w: b for w, b in self._boards.items() if w in live and b.trust is not Trust.QUARANTINED}

    def _judge(self, worker: str) -> Iterator[BoardVerdict]:
        """Compare a board's last check with those of the others, and yield what changed."""
        board, voters = self._boards[worker], self._voters(worker)
        if not voters:
            board.vouched = board.vouched or board.ratios
            yield from self._name(worker, Trust.SEEN, "")
            return
        voters = [each for each in voters if self._vendor_gap(board.ratios, each) > _NAMED] or voters
        differences = sorted(_differences(board.ratios, voters), key=abs)
        if not differences:
            return
        off = exp(differences[(len(differences) - 1) // 2])
        trust = Trust.QUARANTINED if abs(off - 1) >= _QUARANTINED else Trust.OFF
        is_alone = len(voters) == 1 and voters[0] is board.vouched
        whose = "its own of before" if is_alone else "those of other boards"
        how = f"its times are {off:.2f} times {whose}, by canaries beside the reference kernel"
        if off == inf:
            how = f"it fails what other boards run ({board.reason})"
        elif abs(off - 1) >= _NAMED and not is_alone:
            gap = max(self._vendor_gap(board.ratios, each) for each in voters)
            if gap < -_NAMED:
                return  # the others are wrong
            if gap <= _NAMED and len(voters) == 1:
                trust, how = Trust.OFF, f"{how}, and nothing tells which is right"
        is_good = all(abs(exp(each) - 1) < _NAMED for each in differences)
        is_bad = trust is Trust.QUARANTINED
        if board.judged is not board.ratios:
            board.judged = board.ratios
            board.bad = 0 if is_good else board.bad + is_bad
            board.repeats = 0 if is_good else board.repeats + 1
            board.due |= not is_good and board.bad < _BAD_CHECKS and board.repeats <= _MOST_REPEATS
        if abs(off - 1) >= _NAMED and (not is_bad or board.bad == _BAD_CHECKS):
            yield from self._name(worker, trust, how)
        elif is_good:
            if board.vouched is not board.ratios:
                board.interval = min(2 * board.interval, _MOST_RESULTS)
            board.since, board.vouched, board.is_vouched = board.checked, board.ratios, True
            yield from self._name(worker, Trust.SEEN, "")

    def _voters(self, worker: str) -> list[_Ratios]:
        """Return the ratios to compare a worker's with: other boards', stored ones, its own that others vouched for."""
        own = self._boards[worker]
        others = [b for w, b in self._boards.items() if w != worker and b.trust is not Trust.QUARANTINED]
        found = [each.ratios for each in others if each.ratios]
        found += self._stored.values()
        if own.vouched and own.vouched is not own.ratios and (own.is_vouched or not found):
            found.append(own.vouched)
        return found

    def _vendor_gap(self, own: _Ratios, other: _Ratios) -> float:
        """Return by how much the vendor's kernel is farther from the reference kernel's time than on another board."""
        for number, canary in enumerate(self._canaries):
            ours, theirs = own.get(number), other.get(number)
            if canary.task.is_baseline and ours is not None and theirs is not None:
                return abs(ours) - abs(theirs)
        return 0.0

    def _name(self, worker: str, trust: Trust, reason: str) -> Iterator[BoardVerdict]:
        """Yield a verdict where the trust in a board changes."""
        board = self._boards[worker]
        if board.trust is not trust:
            board.trust = trust
            yield self._verdict(worker, trust, reason)

    def _verdict(self, worker: str, trust: Trust, reason: str) -> BoardVerdict:
        board = self._boards[worker]
        return BoardVerdict(board.uuid or worker, worker, trust, reason, board.since, self._now())


def _ratio(reading: Reading) -> float | None:
    """Return the logarithm of a time over the reference kernel's; None for a failure."""
    estimate = reading.estimate
    return None if estimate is None or estimate.level is None else log(estimate.time_ns / estimate.level.time_ns)


def _differences(own: _Ratios, voters: Sequence[_Ratios]) -> Iterator[float]:
    """Yield how far the canaries are from the middle of all boards, as logarithms; infinite for one that fails here."""
    for number, ratio in own.items():
        others = [found for each in voters if (found := each.get(number)) is not None]
        if others and ratio is None:
            yield inf
        elif ratio is not None and others:
            yield ratio - (median([ratio, *others]) if len(others) > 1 else others[0])
