"""The commands around a finished table: show, verify, diff, export and warmup."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from gemmtune.engine.campaign.verify import open_executor, verifying_searches
from gemmtune.engine.campaign.verify import verify as verify_table
from gemmtune.engine.cli import output
from gemmtune.engine.cli.options import MARGIN_HELP, AsJson, Builders, DatabaseUrl
from gemmtune.engine.cli.out_folder import database_url, write_all
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import TableError, UsageError
from gemmtune.engine.report import contents as holdings
from gemmtune.engine.report import diff as diff_report
from gemmtune.engine.report import verify as verification_report
from gemmtune.engine.report.progress.display import progress_bar, show_progress
from gemmtune.engine.scheduling.callbacks import notify
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.files import write_whole
from gemmtune.engine.tables.diff import diff_tables
from gemmtune.engine.tables.export import export_table
from gemmtune.engine.tables.ranking import SHIP_MARGIN
from gemmtune.engine.tables.table_file import read_table, require_device, write_table

__all__ = ["diff", "export", "show", "verify", "warmup"]

_OPTUNA_HELP = "Write a database's tasks as Optuna studies to this storage, sqlite:///studies.db."
_WARM_HELP = "A function of m that calls the compiled model with an input of that m, imported from here."


def show(
    source: Annotated[str, typer.Argument(help="A table (its name ends in .json), or a database: file or URL.")],
    optuna: Annotated[str | None, typer.Option(metavar="URL", help=_OPTUNA_HELP)] = None,
    as_json: AsJson = False,
) -> None:
    """Print a table's rows, or what a database holds."""
    if source.endswith(".json"):
        if optuna is not None:
            raise UsageError(f"--optuna writes what a database holds, and {source} is a table: name the database")
        table = read_table(Path(source))
        if as_json:
            output.print_json(holdings.table_record(table))
        else:
            print(holdings.table(table, output.columns()))
        return
    with Database.open(source, create=False) as store:
        if optuna is not None:
            _write_studies(store, optuna, as_json)
        elif as_json:
            output.print_json(holdings.database_record(store))
        else:
            print(holdings.database(store, output.columns()))


def verify(
    table: Annotated[Path, typer.Argument(help="The table (table.json).")],
    out: Annotated[Path, typer.Option(help="Folder for the mended table and the database.")] = Path("verified"),
    margin: Annotated[float, typer.Option(help=MARGIN_HELP)] = SHIP_MARGIN,
    replay: Annotated[list[Path] | None, typer.Option(help="Answer from this landscape. Repeat for more.")] = None,
    database: DatabaseUrl = None,
    builders: Builders = None,
    as_json: AsJson = False,
) -> None:
    """Measure the contenders of every row again, after an upgrade or on another board; write OUT/table.json, mended.

    A row holds if what it runs works and is at most 2 % behind the best of its contenders. Exit status 1 if one, or a
    range, does not.
    """
    content = read_table(table)
    searches = verifying_searches(content)
    with show_progress(quiet=as_json, unit=registry.objective(content.objective).unit) as callbacks:
        executor = open_executor(content, landscapes=replay or (), builders=builders, notify=partial(notify, callbacks))
        with closing(executor), Database.open(database_url(out, database)) as store:
            found = verify_table(content, margin, searches, executor, store, callbacks)
    write_table(out / "table.json", found.mended)
    if as_json:
        output.print_json(verification_report.verification_record(found))
    else:
        print(f"{verification_report.verification(found, output.columns())}\nwritten: {out / 'table.json'}")
    raise typer.Exit(0 if found.holds else 1)


def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="A table.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="The table to compare it with.")],
    as_json: AsJson = False,
) -> None:
    """Say in which rows two tables differ; exit status 1 if they do.

    A row differs if it was added, is gone, has another winner, or the same winner with a time that changed beyond the
    intervals, or that comes of other evidence or another protocol.
    """
    old, new = read_table(before), read_table(after)
    found = diff_tables(old, new)
    if as_json:
        output.print_json(diff_report.diff_record(found))
    else:
        print(diff_report.diff(found, new.device, output.columns()))
    raise typer.Exit(0 if found.same else 1)


def export(
    table: Annotated[Path, typer.Argument(help="The table to export (table.json).")],
    to: Annotated[str, typer.Option(help="The consumer.")] = "inductor",
    out: Annotated[
        Path | None, typer.Option(help="Folder; the files go to OUT/<consumer>. [default: the table's]")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Refuse a table of another device.")] = None,
    estimated: Annotated[bool, typer.Option("--estimated", help="Export rows that nobody timed, too.")] = False,
) -> None:
    """Write a table as the files its consumer loads."""
    if device is not None:
        require_device(read_table(table), catalogue.device(device))
    files = export_table(registry.exporter(to), read_table(table), estimated=estimated)
    for path in write_all(files, (out or table.parent) / to):
        print(path)


def warmup(
    table: Annotated[Path, typer.Argument(help="What gemmtune export wrote: inductor_table.json.")],
    call: Annotated[str, typer.Option(metavar="MODULE:NAME", help=_WARM_HELP)],
    out: Annotated[Path, typer.Option(help="The file of compiled code.")] = Path("warm.bin"),
) -> None:
    """Compile a model at every m of a table ahead of serving, and write what Inductor cached of it to a file.

    A serving process loads it with torch.compiler.load_cache_artifacts, and compiles nothing.
    """
    sys.path.insert(0, str(Path.cwd()))
    from gemmtune.engine.tables.inductor import loader as inductor
    from gemmtune.engine.tables.inductor.products import imported

    try:
        inductor.install(table)
        artifacts = inductor.warm_up(imported(call), table)
        sizes = inductor.sizes(table)
    except (OSError, TypeError, ValueError, RuntimeError) as error:
        raise TableError(str(error)) from None
    write_whole(out, artifacts)
    print(f"{out}: {len(artifacts)} B, called at m = {', '.join(map(str, sizes))}")


def _write_studies(store: Database, url: str, as_json: bool) -> None:
    from gemmtune.engine.report.optuna_study import study_line, write_studies  # optuna takes a while to import

    with progress_bar("trials", quiet=as_json) as count:
        written = write_studies(store, url, count)
    if as_json:
        output.print_json({"studies": [asdict(study) for study in written]})
    else:
        print("\n".join([*map(study_line, written), f"to look at them: optuna-dashboard {url}"]))
