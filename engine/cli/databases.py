"""The commands that read and merge databases: status and merge."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Annotated

import typer

from gemmtune.engine.cli import output
from gemmtune.engine.cli.options import AsJson
from gemmtune.engine.report.database import merge_report
from gemmtune.engine.report.status import status_report
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.merge import merge as merge_databases

__all__ = ["merge", "status"]


def status(
    database: Annotated[str, typer.Argument(metavar="DB", help="The campaign's database: file or URL.")],
    as_json: AsJson = False,
) -> None:
    """Show how far a campaign is, from another terminal.

    Reads the campaign's database and changes nothing.
    """
    with Database.open(database, create=False) as store:
        report = status_report(store, datetime.now(UTC))
    output.show(report, as_json=as_json)


def merge(
    into: Annotated[str, typer.Argument(metavar="INTO", help="The database to add to: file or URL.")],
    sources: Annotated[list[str], typer.Argument(metavar="FROM", help="The databases to read: files or URLs.")],
    as_json: AsJson = False,
) -> None:
    """Add the measurements of several databases to one.

    Measurements that INTO already holds stay as they are. A merge that was stopped goes on where it was.
    """
    with ExitStack() as opened:
        others = {s: opened.enter_context(Database.open(s, create=False)) for s in dict.fromkeys(sources)}
        target = opened.enter_context(Database.open(into))
        merged = {source: merge_databases(target, other) for source, other in others.items()}
    output.show(merge_report(merged), as_json=as_json)
