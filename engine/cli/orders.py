"""The command of a database and its campaigns: how far they are, what to do, what to withdraw or to merge."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmtune.engine.cli import output
from gemmtune.engine.cli.options import AsJson
from gemmtune.engine.io.numbers import shown
from gemmtune.engine.io.paths import FileKind, find
from gemmtune.engine.records.errors import Stopped, UsageError, did_you_mean
from gemmtune.engine.report.progress.work import show_work
from gemmtune.engine.seams.kinds import parse_workload

if TYPE_CHECKING:
    from gemmtune.engine.report.layout import Report
    from gemmtune.engine.store.shared.campaigns import Added, Campaigns

_DATABASE_HELP = "The campaigns' database: file, folder or URL."
_ORDER_HELP = (
    "What to do: pause NAME, resume NAME, cancel NAME, priority NAME N, add NAME and problems, forget BOARD, or "
    "merge and databases. Without one, the database is shown."
)
_VALUES_HELP = (
    "The campaign, all of whose drivers obey; behind forget the GPU, as nvidia-smi -L and this command name it; "
    "behind merge the databases to read."
)
_SINCE_HELP = "Forget from this time on: such as 2026-11-27T08:30, of this host's zone or of its own."
_WATCH_HELP = "Print again every two seconds, until Ctrl-C."
_WATCH_SECONDS = 2.0


def campaigns(
    database: Annotated[str, typer.Argument(metavar="DB", help=_DATABASE_HELP)] = "out/measurements.db",
    order: Annotated[str | None, typer.Argument(metavar="ORDER", help=_ORDER_HELP)] = None,
    values: Annotated[list[str] | None, typer.Argument(metavar="VALUE", help=_VALUES_HELP)] = None,
    since: Annotated[str, typer.Option(metavar="TIME", help=_SINCE_HELP)] = "",
    watch: Annotated[bool, typer.Option("--watch", help=_WATCH_HELP)] = False,
    as_json: AsJson = False,
) -> None:
    """See and steer the campaigns of a database.

    Shows who runs what, how far it is, and each problem and worker. Evaluations done, their total and the time left are
    known where the database is in the campaign's folder.

    A driver obeys an order within two seconds. A paused one ends what is in work and submits nothing until it is
    resumed. A cancelled one ends what is in work, writes its table of what is done, and exits with status 3. Where
    campaigns take the GPUs of one host or cluster, those of a lower priority (by default 0) wait until the higher ones
    end. Problems that are added are searched when the campaign's own are done; its driver answers how many it adds, has
    already, or cannot measure.

    What a forgotten GPU measured is kept, with the time of its withdrawal, and not used; campaigns that run, or the
    next one, measure those configs again. A campaign withdraws by itself what a GPU measured that it finds to be bad. A
    merge leaves out what DB has withdrawn, and withdraws what a source's bad GPU measured; a stopped one goes on.
    """
    if watch and (as_json or order):
        raise UsageError("--watch shows a database to a person; leave out --json and the order")
    if since and order != "forget":
        raise UsageError("--since belongs to the order forget BOARD")
    with show_work("reading the database", quiet=as_json):
        report = _shown(database) if order is None else _obeyed(database, order, values or (), since)
    if not watch:
        output.show(report, as_json=as_json)
        return
    try:
        while True:
            output.show_over(report)
            time.sleep(_WATCH_SECONDS)
            report = _shown(database)
    except Stopped:
        return  # asked to end


def _shown(database: str) -> Report:
    """Report how far the campaigns of a database are."""
    from gemmtune.engine.report.progress.progress_file import read_progress
    from gemmtune.engine.report.status import status_report
    from gemmtune.engine.store.database import Database

    database = find(database, FileKind.DATABASE)
    folder = Path() if "://" in database else Path(database).parent
    with Database.open(database, read_only=True) as store:
        return status_report(store, datetime.now(UTC), read_progress(folder))


def _obeyed(database: str, order: str, values: Sequence[str], since: str) -> Report:
    """Do what an order says and report it; raises UsageError if it is unknown, or has too few or too many values."""
    if order not in _ORDERS:
        known = f"{did_you_mean(order, _ORDERS)}known: {', '.join(_ORDERS)}"
        known += f"; the database goes first: gemmtune campaigns DB {database} {order}" if database in _ORDERS else ""
        raise UsageError(f"gemmtune campaigns knows no order {order!r}; {known}")
    least, most = _NUMBERS.get(order, (1, 1))
    if not least <= len(values) <= most:
        raise UsageError(f"the order is written {order} {_ORDERS[order]}")
    if order == "merge":
        return _merged(database, values)
    if order == "forget":
        return _forgotten(database, values[0], since)
    from gemmtune.engine.report.campaigns import order_report
    from gemmtune.engine.store.database import Database

    name, *others = values
    told = _order(order, name, others)
    with Database.open(find(database, FileKind.DATABASE)) as store:
        return order_report(order, name, told(store.campaigns))


def _order(order: str, name: str, values: Sequence[str]) -> Callable[[Campaigns], int | Added]:
    """Return the function that gives an order to a database's campaigns and returns what `order_report` takes."""
    if order == "priority":
        if not re.fullmatch(r"[+-]?\d{1,9}", values[0]):
            raise UsageError(f"priority={shown(values[0])} is no integer of at most nine digits, such as 1 or -1")
        return lambda known: known.tell(name, priority=int(values[0]))
    if order == "add":
        problems = [parse_workload(text) for text in values]
        for problem in problems:
            if any(problem.described_by):
                raise UsageError(f"{problem.name} is described by code, which no database passes on: tune it there")
        return lambda known: known.add(name, problems)
    from gemmtune.engine.store.shared.campaigns import Wish

    wish = {"pause": Wish.PAUSE, "resume": Wish.RUN, "cancel": Wish.CANCEL}[order]
    return lambda known: known.tell(name, wish=wish)


def _merged(into: str, sources: Sequence[str]) -> Report:
    from gemmtune.engine.report.database import merge_report
    from gemmtune.engine.store.database import Database
    from gemmtune.engine.store.merge import merge

    with ExitStack() as opened:
        others = {s: opened.enter_context(Database.open(s, read_only=True)) for s in dict.fromkeys(sources)}
        target = opened.enter_context(Database.open(into))
        return merge_report({source: merge(target, other) for source, other in others.items()})


def _forgotten(database: str, board: str, since: str) -> Report:
    from gemmtune.engine.report.database import withdrawal_report
    from gemmtune.engine.store.database import Database

    try:
        at = datetime.fromisoformat(since).astimezone(UTC).isoformat(timespec="seconds") if since else ""
    except ValueError:
        raise UsageError(f"--since {since!r} is no time; write it as 2026-11-27 or 2026-11-27T08:30") from None
    with Database.open(find(database, FileKind.DATABASE)) as store:
        if board not in (known := store.boards.names()):
            there = f"{did_you_mean(board, known)}boards: {', '.join(known) or 'none'}"
            raise UsageError(f"board {shown(board)} measured nothing that {database} holds; {there}")
        number, _ = store.boards.withdraw(board, "by hand", since=at)
    return withdrawal_report(board, at, number)


_ORDERS = {
    "pause": "NAME",
    "resume": "NAME",
    "cancel": "NAME",
    "priority": "NAME N",
    "add": "NAME PROBLEM...",
    "forget": "BOARD",
    "merge": "FROM...",
}
_NUMBERS = {"priority": (2, 2), "add": (2, 1 << 31), "merge": (1, 1 << 31)}
"""Least and most values of the orders that take others than one."""
