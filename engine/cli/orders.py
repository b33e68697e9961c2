"""The command that lists the campaigns of a database and tells them what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gemmtune.engine.cli import output
from gemmtune.engine.cli.options import AsJson
from gemmtune.engine.io.numbers import shown
from gemmtune.engine.io.paths import FileKind, find
from gemmtune.engine.records.errors import UsageError, did_you_mean
from gemmtune.engine.report.progress.work import show_work
from gemmtune.engine.seams.kinds import parse_workload

if TYPE_CHECKING:
    from gemmtune.engine.store.shared.campaigns import Added, Campaigns

_ORDER_HELP = "What to tell a campaign: pause, resume, cancel, priority or add. Without one, campaigns are listed."
_VALUES_HELP = "Behind priority a number, behind add problems."


def campaigns(
    database: Annotated[str, typer.Argument(metavar="DB", help="The campaigns' database: file, folder or URL.")],
    order: Annotated[str | None, typer.Argument(metavar="ORDER", help=_ORDER_HELP)] = None,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="The campaign: all of its drivers obey.")] = None,
    values: Annotated[list[str] | None, typer.Argument(metavar="VALUE", help=_VALUES_HELP)] = None,
    as_json: AsJson = False,
) -> None:
    """List the campaigns of a database, or tell one what to do.

    A driver obeys within two seconds. A paused one ends what is in work and submits nothing until it is resumed. A
    cancelled one ends what is in work, writes its table of what is done, and exits with status 3. Where campaigns take
    the GPUs of one host or cluster, those of a lower priority (by default 0) wait until the higher ones end. Problems
    that are added are searched when the campaign's own are done; its driver answers how many it adds, has already, or
    cannot measure.
    """
    with show_work("reading the database", quiet=as_json):
        from gemmtune.engine.report.campaigns import campaigns_report, order_report
        from gemmtune.engine.store.database import Database

        database = find(database, FileKind.DATABASE)
        told = None if order is None else _order(order, name, values or ())
        with Database.open(database, read_only=told is None) as store:
            report = (
                campaigns_report(store.campaigns.all())
                if told is None
                else order_report(str(order), str(name), told(store.campaigns))
            )
    output.show(report, as_json=as_json)


def _order(order: str, name: str | None, values: Sequence[str]) -> Callable[[Campaigns], int | Added]:
    """Return the function that gives an order to a database's campaigns and returns what `order_report` takes.

    Raises:
        UsageError: the order is unknown, lacks its name or values, or has too many.
    """
    if order not in _ORDERS:
        known = f"{did_you_mean(order, _ORDERS)}known: {', '.join(_ORDERS)}"
        raise UsageError(f"gemmtune campaigns knows no order {order!r}; {known}")
    if name is None or bool(values) != (order in ("priority", "add")):
        raise UsageError(f"the order is written {order} {_ORDERS[order]}")
    chosen = name
    if order == "priority":
        number = _number(values)
        return lambda known: known.tell(chosen, priority=number)
    if order == "add":
        problems = [parse_workload(text) for text in values]
        for problem in problems:
            if any(problem.described_by):
                raise UsageError(f"{problem.name} is described by code, which no database passes on: tune it there")
        return lambda known: known.add(chosen, problems)
    from gemmtune.engine.store.shared.campaigns import Wish

    wish = {"pause": Wish.PAUSE, "resume": Wish.RUN, "cancel": Wish.CANCEL}[order]
    return lambda known: known.tell(chosen, wish=wish)


def _number(values: Sequence[str]) -> int:
    try:
        (text,) = values
        if abs(number := int(text)) < _MOST:
            return number
    except ValueError:
        pass
    raise UsageError(f"priority={shown(' '.join(values))} is no integer, such as 1 or -1")


_MOST = 2**31
_ORDERS = {"pause": "NAME", "resume": "NAME", "cancel": "NAME", "priority": "NAME N", "add": "NAME PROBLEM..."}
