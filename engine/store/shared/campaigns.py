"""Campaigns that drivers run on a database: who, how far, and what they are told to do."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pwd import getpwuid
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert, inspect, select, update

from gemmtune.engine.records.errors import UsageError, did_you_mean
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.store import schema
from gemmtune.engine.store.column_types import DECODING_ERRORS, PROBLEM
from gemmtune.engine.store.connection import Transactions
from gemmtune.engine.store.shared.claims import LEASE_SECONDS, is_dead, server_seconds, this_host

ADDED, PRESENT = "added", "present"
"""Answers of a driver to a problem that is added: it will be searched, or is in the campaign already."""
_ANSWER_SECONDS, _LOOK_SECONDS = 5.0, 0.2  # wait for answers, and between two looks
_NONE: Mapping[Any, str] = MappingProxyType({})
_COLUMNS = schema.campaigns.c


class State(StrEnum):
    """State of a campaign."""

    RUNNING = "running"
    WAITING = "waiting"
    """A campaign of higher priority takes its GPUs, so it submits nothing."""
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"
    STOPPED = "stopped"
    """A signal or an error ended it; the same command goes on."""
    LOST = "lost"
    """Its driver died or hangs; stored is what it was before."""


LIVE = (State.RUNNING, State.WAITING, State.PAUSED)
"""States of a campaign whose driver runs."""


class Wish(StrEnum):
    """Order to a campaign."""

    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Account:
    """Progress and use of a campaign, which its driver writes again and again."""

    done: int = 0
    """Evaluations that are done, with those the database answered."""
    total: int = 0
    """Evaluations that its searches may spend."""
    gpu_seconds_held: float = 0.0
    """Seconds of GPUs that the campaign had, busy or not."""
    gpu_seconds_busy: float = 0.0
    """Seconds of GPUs that had a config to time."""
    core_seconds: float = 0.0
    """Seconds of cores that built kernels."""
    gain: float = 0.0
    """Share of the baselines' weighted time that the best configs save."""
    gain_problems: int = 0
    """Problems that the gain is of: those whose baseline and a config are measured."""
    gain_per_hour: float | None = None
    """Growth of the gain per hour; None in the first minute."""
    cost: float | None = None
    """Cost by the price that the driver was told; None without one."""


@dataclass(frozen=True, slots=True)
class Listed(Account):
    """Campaign of one driver, as the database lists it."""

    id: int = 0
    """Number of the row."""
    name: str = ""
    """Name that orders are given by; several drivers may share it."""
    owner: str = ""
    """User of the driver."""
    host: str = ""
    """Host of the driver."""
    pid: int = 0
    """Process of the driver."""
    location: str = ""
    """Host or cluster whose GPUs it takes."""
    state: str = State.RUNNING
    """State; `lost` for a driver that says nothing any more."""
    wanted: str = Wish.RUN
    """Order to the driver."""
    priority: int = 0
    """Campaigns of a lower priority at the location wait."""
    problems: int = 0
    """Number of the plan's problems."""
    seconds: float = 0.0
    """Seconds from its start to the last word of the driver."""
    silent_seconds: float = 0.0
    """Seconds since the last word of the driver."""

    @property
    def is_live(self) -> bool:
        """Whether the driver runs."""
        return self.state in LIVE


@dataclass(frozen=True, slots=True)
class Instructions:
    """Orders to a driver."""

    wish: Wish = Wish.RUN
    """Whether to run, pause or end."""
    waits_for: str = ""
    """Name of a live campaign of higher priority at the location; empty for none."""
    added: tuple[Workload, ...] = ()
    """Problems that were added."""


class Added(NamedTuple):
    """Answer to problems that were added."""

    drivers: int
    """Number of drivers that were told."""
    answers: dict[str, str]
    """ADDED, PRESENT, why it cannot be searched, or empty where no driver answered in time, by a problem's name."""


class Campaigns:
    """The table of campaigns on a database."""

    def __init__(self, transactions: Transactions) -> None:
        """Read and write by these transactions."""
        self._transactions = transactions

    def register(self, name: str, digest: str, location: str, problems: int) -> int:
        """Add the campaign of this process; return its row's number.

        It takes over what drivers of its name were told: added problems, and the priority and a pause of those that run
        or did not end by themselves.

        Args:
            name: name of the campaign; empty for the user's, with the digest.
            digest: short digest of the plan.
            location: host or cluster whose GPUs it takes.
            problems: number of the plan's problems.

        Raises:
            StoreError: the database refused.
        """
        name = name or f"{_user()}-{digest}"
        values = {"name": name, "owner": _user(), "host": this_host(), "pid": os.getpid()}
        values |= {"location": location, "problems": problems, "state": State.RUNNING, "answers": ""}
        values |= {"started": server_seconds(), "seen": server_seconds(), **asdict(Account())}
        told = select(_COLUMNS.state, _COLUMNS.wanted, _COLUMNS.priority, _COLUMNS.added).where(_COLUMNS.name == name)
        last = told.order_by(_COLUMNS.seen.desc(), _COLUMNS.id.desc()).limit(1)

        def write(connection: Connection) -> int:
            state, wanted, priority, added = connection.execute(last).first() or (State.DONE, "", 0, "")
            goes_on = state not in (State.DONE, State.CANCELLED)
            wish = Wish.PAUSE if goes_on and wanted == Wish.PAUSE else Wish.RUN
            row = values | {"wanted": wish, "priority": priority if goes_on else 0, "added": added}
            return int(connection.execute(insert(schema.campaigns).values(row).returning(_COLUMNS.id)).scalar_one())

        return self._transactions.write(write)

    def report(
        self, number: int, state: State, account: Account, answers: Mapping[Workload, str] = _NONE
    ) -> Instructions:
        """Write the state of the campaign of this process; return what it is told.

        Args:
            number: number of its row.
            state: state that it is in.
            account: progress so far.
            answers: ADDED, PRESENT, or why it cannot be searched, by each problem that was added.

        Raises:
            StoreError: the database refused.
        """
        own = update(schema.campaigns).where(_COLUMNS.id == number).values(seen=server_seconds(), state=state)
        own = own.values(asdict(account))
        if answers:
            own = own.values(answers=json.dumps({PROBLEM.encode(problem): said for problem, said in answers.items()}))
        told = own.returning(_COLUMNS.wanted, _COLUMNS.added, _COLUMNS.location, _COLUMNS.priority)
        higher = select(_COLUMNS.name, _COLUMNS.host, _COLUMNS.pid).where(
            _COLUMNS.state.in_((State.RUNNING, State.WAITING)), _COLUMNS.seen > server_seconds() - LEASE_SECONDS
        )

        def write(connection: Connection) -> Instructions:
            row = connection.execute(told).first()
            if row is None:
                return Instructions()
            before = _COLUMNS.location == row.location, _COLUMNS.priority > row.priority, _COLUMNS.id != number
            found = connection.execute(higher.where(*before).order_by(_COLUMNS.priority.desc())).all()
            waits_for = next((each.name for each in found if not is_dead(each.host, each.pid)), "")
            return Instructions(Wish(row.wanted), waits_for, _problems(row.added))

        return self._transactions.write(write, durable=False)

    def all(self) -> list[Listed]:
        """Return every campaign, the last one first; none of a database of an older version.

        Raises:
            StoreError: the database cannot be read.
        """
        now = server_seconds()
        times = (_COLUMNS.seen - _COLUMNS.started).label("seconds"), (now - _COLUMNS.seen).label("silent_seconds")
        fields = (name for name in Listed.__dataclass_fields__ if name in _COLUMNS)
        statement = select(*times, *(_COLUMNS[name] for name in fields)).order_by(_COLUMNS.id.desc())

        def read(connection: Connection) -> list[Listed]:
            is_there = inspect(connection).has_table(schema.campaigns.name)
            return [_listed(Listed(**row)) for row in connection.execute(statement).mappings()] if is_there else []

        return self._transactions.read(read)

    def tell(self, name: str, *, wish: Wish | None = None, priority: int | None = None) -> int:
        """Tell every live campaign of a name what to do; return their number.

        Raises:
            StoreError: the database refused.
            UsageError: no live campaign has that name; the message names those that run.
        """
        values = {"wanted": wish, "priority": priority}
        return self._change(self._live(name), {name: value for name, value in values.items() if value is not None})

    def add(self, name: str, problems: Sequence[Workload], answer_seconds: float = _ANSWER_SECONDS) -> Added:
        """Add problems to every live campaign of a name; return what its drivers answer.

        Args:
            name: name of the campaigns.
            problems: problems to search once the campaigns' own are done.
            answer_seconds: time to wait for the first answer to all of them, at most.

        Raises:
            StoreError: the database refused.
            UsageError: no live campaign has that name; the message names those that run.
        """
        chosen, lines = self._live(name), {PROBLEM.encode(problem): problem.name for problem in problems}
        texts = select(_COLUMNS.added, _COLUMNS.answers).where(_COLUMNS.id.in_(chosen))

        def look(connection: Connection) -> list[tuple[str, dict[str, str]]]:
            return [(row.added, _answers(row.answers)) for row in connection.execute(texts)]

        before = set(lines).intersection(*(held.splitlines() for held, _ in self._transactions.read(look)))
        drivers = self._change(chosen, {"added": _COLUMNS.added + "".join(f"{line}\n" for line in lines)})
        until, answers = time.monotonic() + answer_seconds, dict[str, str]()
        while not answers.keys() >= lines.keys() and time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
            answers = {line: said for _, its in self._transactions.read(look) for line, said in its.items()}
        answers |= {line: PRESENT for line in before if answers.get(line, ADDED) == ADDED}
        return Added(drivers, {name: answers.get(line, "") for line, name in lines.items()})

    def _change(self, chosen: Sequence[int], values: dict[str, object]) -> int:
        statement = update(schema.campaigns).where(_COLUMNS.id.in_(chosen)).values(values)
        self._transactions.write(lambda connection: connection.execute(statement))
        return len(chosen)

    def _live(self, name: str) -> list[int]:
        """Return the numbers of the live campaigns of a name; raises as `tell` does."""
        every = self.all()
        live = [each for each in every if each.is_live]
        chosen = [each.id for each in live if each.name == name and each.wanted != Wish.CANCEL]
        if not chosen:
            names = sorted({each.name for each in live})
            running = f"running: {', '.join(names)}" if names else "none runs"
            if ended := next((each for each in every if each.name == name), None):
                way = "" if ended.state == State.DONE else "the command that began it goes on; "
                state = "being cancelled" if ended.is_live else f"over ({ended.state})"
                raise UsageError(f"campaign {name!r} is {state} and takes no orders; {way}{running}")
            known = f"{did_you_mean(name, names)}{running}"
            raise UsageError(f"no campaign {name!r} runs on {self._transactions.name}; {known}")
        return chosen


def _listed(found: Listed) -> Listed:
    """Return a campaign with its host's name, and the state `lost` where its driver says nothing any more."""
    gone = found.is_live and (found.silent_seconds > LEASE_SECONDS or is_dead(found.host, found.pid))
    return replace(found, host=found.host.partition("#")[0], state=State.LOST if gone else found.state)


def _problems(lines: str) -> tuple[Workload, ...]:
    """Return the problems of lines, without damaged ones and those that code describes: a database runs nothing."""
    found: dict[Workload, None] = {}
    for line in lines.splitlines():
        try:
            problem = PROBLEM.decode(line)
        except DECODING_ERRORS:
            continue
        if not any(problem.described_by):
            found[problem] = None
    return tuple(found)


def _answers(text: str) -> dict[str, str]:
    """Return what a driver said to each added problem, by its line; nothing of a damaged text."""
    try:
        return {line: str(said) for line, said in json.loads(text or "{}").items()}
    except (ValueError, AttributeError):
        return {}


def _user() -> str:
    try:
        return getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"
