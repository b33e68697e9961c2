"""The commands of tables and databases: show, verify, diff, export, warmup, status, merge and forget."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from gemmtune.engine.cli import output
from gemmtune.engine.cli.choices import Kind, completed, one_of
from gemmtune.engine.cli.options import (
    NO_BINARIES_HELP,
    AsJson,
    Builders,
    DatabaseUrl,
    Replayed,
    Where,
    plan_option,
)
from gemmtune.engine.execution.hosts import LOCAL
from gemmtune.engine.io.blame import account
from gemmtune.engine.io.importing import imported, parse_callable
from gemmtune.engine.io.numbers import shown
from gemmtune.engine.io.paths import FileKind, find
from gemmtune.engine.io.printing import print_notice, print_text
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import GemmtuneError, Stopped, TableError, UsageError, did_you_mean
from gemmtune.engine.report.progress.work import show_work
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.seams.plugin_class import adopted
from gemmtune.engine.store.files import write_whole
from gemmtune.engine.toolchain.installed import require_extra

_WATCH_SECONDS = 2.0
_OPTUNA_HELP = "Write the database's tasks as Optuna studies to this storage, for example sqlite:///studies.db."
_TO_HELP = f"The consumer to write for, {one_of(Kind.EXPORTERS)}; or a class, ./FILE.py:CLASS."
_EXPORTED_HELP = "The table to export: table.json or a campaign's folder. Several are of one GPU each."
_INTO_HELP = "The database to add to, file or URL; or the table.json to write, to whose rows, if any, others are added."
_REFRESH_HELP = "Only rows made with another driver, torch or Triton than those here; the others stay as they are."
_SHOWN_HELP = "A table, an exported table, landscapes, a run, a campaign's folder, or a database: file or URL."
_SHA256_HELP = "Refuse a table whose bytes have another digest than this one, which sha256sum prints."
_SINCE_HELP = "Leave what it measured before: a time such as 2026-11-27T08:30, of this host's zone or of its own."
_WARM_HELP = "Function that takes m and calls the compiled model with an input of that m; imported from this folder."


def show(
    source: Annotated[str, typer.Argument(metavar="PATH", help=_SHOWN_HELP)],
    sort: Annotated[str | None, typer.Option(metavar="COLUMN", help="Sort the lines by this column.")] = None,
    contains: Annotated[str, typer.Option("--filter", metavar="TEXT", help="Only lines that have this text.")] = "",
    optuna: Annotated[str | None, typer.Option(metavar="URL", help=_OPTUNA_HELP)] = None,
    as_json: AsJson = False,
) -> None:
    """Print a table, landscapes, or the tasks of a database.

    Takes every file that gemmtune writes, exported tables included, and a campaign's folder.
    """
    if optuna is not None:
        _write_studies(source, optuna, as_json)
        return
    if as_json and (sort is not None or contains):
        raise UsageError("--json prints all that there is, in order; leave out --sort and --filter")
    with show_work(f"reading {source}", quiet=as_json):
        from gemmtune.engine.api.showing import file_report

        report = file_report(source)
    output.show(report.arranged(sort, contains), as_json=as_json)


def verify(
    table: Annotated[Path, typer.Argument(help="The table: table.json or a campaign's folder.")],
    out: Annotated[Path, typer.Option(help="Folder for the repaired table and the database.")] = Path("verified"),
    margin: Annotated[float | None, plan_option("margin", "the table's")] = None,
    replay: Replayed = None,
    database: DatabaseUrl = None,
    fleet: Where = LOCAL,
    builders: Builders = None,
    refresh: Annotated[bool, typer.Option("--refresh", help=_REFRESH_HELP)] = False,
    as_json: AsJson = False,
) -> None:
    """Measure a table's rows again, after an upgrade or elsewhere.

    Times the contenders of every row and writes OUT/table.json with the new times; a row that does not hold is replaced
    by its best contender. A row holds if its choice works and is at most 2 % slower than the best contender. OUT keeps
    the measurements. With --database, nothing is measured again that DB holds. The exit status is 1 if a row or a range
    does not hold.
    """
    with show_work(f"reading {table}", quiet=as_json):
        from gemmtune.engine.api.table import read_table
        from gemmtune.engine.api.verifying import verify as verify_table
        from gemmtune.engine.report.progress.display import show_progress

        content = read_table(table)
    with show_progress(quiet=as_json, unit=registry.objective(content.objective).unit) as callbacks:
        found = verify_table(
            content,
            margin=margin,
            backend=replay or "auto",
            fleet=fleet,
            ray_address=os.environ.get("RAY_ADDRESS"),
            builders=builders,
            callbacks=callbacks,
            database=database,
            out=out,
            refresh=refresh,
        )
    output.show(found.report, as_json=as_json)
    if not as_json and (found.record.rows or found.record.ranges):
        print_text(f"written: {out / 'table.json'}, {out / 'report.html'}")
    raise typer.Exit(0 if found.holds else 1)


def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="A table, or a campaign's folder.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="The table to compare it with.")],
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the differences as a page, too.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the rows in which two tables differ.

    A row differs if only one table has it, if its winner changed, or if the winner's time changed beyond both
    intervals or has other evidence or another protocol. The exit status is 1 if any row differs.
    """
    with show_work(f"reading {before} and {after}", quiet=as_json):
        from gemmtune.engine.api.table import read_table
        from gemmtune.engine.report.tables import diff_report

        old, new = read_table(before), read_table(after)
        found = old.diff(new)
    if html is not None:
        from gemmtune.engine.report.html.change_pages import diff_html  # matplotlib takes a while to import

        write_whole(html, diff_html(found, old, new, (str(before), str(after))).encode())
    output.show(diff_report(found, new.device), as_json=as_json)
    raise typer.Exit(0 if found.same else 1)


def export(
    table: Annotated[list[Path], typer.Argument(metavar="TABLE", help=_EXPORTED_HELP)],
    to: Annotated[
        str, typer.Option(metavar="CONSUMER", help=_TO_HELP, autocompletion=completed(Kind.EXPORTERS))
    ] = "inductor",
    out: Annotated[
        Path | None, typer.Option(help="Folder; files go to OUT/CONSUMER. [default: the first table's folder]")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Refuse a table that is for another device.")] = None,
    estimated: Annotated[bool, typer.Option("--estimated", help="Export estimated rows, too.")] = False,
) -> None:
    """Write a table as the files that its consumer loads.

    Tables of several GPUs become one folder, whose loader picks the table of its GPU.
    """
    with show_work(f"exporting {', '.join(map(str, table))}", quiet=False):
        from gemmtune.engine.api.output_folder import left_behind, with_packages
        from gemmtune.engine.api.table import read_table

        content, *beside = map(read_table, table)
        for each in (content, *beside) if device is not None else ():
            each.require_device(catalogue.device(str(device)))
        folder = out or Path(find(table[0], FileKind.TABLE)).parent
        to = adopted(Exporter, to)
        written = content.export(to, folder, estimated=estimated, beside=beside)
    print_text("\n".join(map(str, with_packages(written))))
    if others := left_behind(folder / to, written):
        print_notice(f"gemmtune: {others}")


def warmup(
    table: Annotated[Path, typer.Argument(help="inductor_table.json, as gemmtune export writes it, or its folder.")],
    call: Annotated[str, typer.Option(metavar="MODULE:NAME", help=_WARM_HELP)],
    out: Annotated[Path, typer.Option(help="The file of compiled code.")] = Path("warm.bin"),
    sha256: Annotated[str | None, typer.Option("--sha256", metavar="DIGEST", help=_SHA256_HELP)] = None,
    no_binaries: Annotated[bool, typer.Option("--no-binaries", help=NO_BINARIES_HELP)] = False,
) -> None:
    """Compile a model ahead of serving, at every m of a table.

    Writes Inductor's cached code to a file. A serving process that loads the file with
    torch.compiler.load_cache_artifacts compiles nothing.
    """
    sys.path.insert(0, str(Path.cwd()))
    with show_work(f"compiling {call}", quiet=False):
        parse_callable(call)
        path = Path(find(table, FileKind.INDUCTOR))
        sizes, artifacts = _compiled(path, call, sha256=sha256, binaries=not no_binaries)
    write_whole(out, artifacts)
    print_text(f"{out}: {len(artifacts)} B, called at m = {', '.join(map(str, sizes))}")


def _compiled(table: Path, call: str, *, sha256: str | None, binaries: bool) -> tuple[tuple[int, ...], bytes]:
    """Return every m of a table, and Inductor's cached code of a call at them."""
    require_extra("triton", "warmup", "torch", "triton")
    from gemmtune.engine.consumers.inductor.loader import loader as inductor

    try:
        inductor.install(table, sha256=sha256, binaries=binaries)
        sizes = inductor.sizes(table)
    except (OSError, TypeError, ValueError, RuntimeError) as error:
        raise TableError(str(error)) from None
    called = sizes[0]
    try:
        model = imported(call)

        def call_at(m: int) -> object:
            nonlocal called
            called = m
            return model(m)

        return sizes, inductor.warm_up(call_at, table)
    except GemmtuneError:
        raise
    except Exception as error:  # the model's own
        raise UsageError(f"{call} fails at m = {called}: {account(error)}") from error
    finally:
        inductor.uninstall()  # who called the command in a process of their own keeps Inductor as it was


def status(
    database: Annotated[
        str, typer.Argument(metavar="DB", help="The campaign's database: file, folder or URL.")
    ] = "out/measurements.db",
    watch: Annotated[bool, typer.Option("--watch", help="Print again every two seconds, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how far a campaign is, from another terminal.

    Reads the campaign's database and changes nothing. Evaluations done, their total and the time left are known where
    the database is in the campaign's folder.
    """
    if watch and as_json:
        raise UsageError("--watch is for a person, and --json for a program; take one of them")
    with show_work("reading the database", quiet=as_json):
        database = find(database, FileKind.DATABASE)
        folder = Path() if "://" in database else Path(database).parent
        from gemmtune.engine.report.progress.progress_file import read_progress
        from gemmtune.engine.report.status import status_report
        from gemmtune.engine.store.database import Database

        with Database.open(database, read_only=True) as store:
            report = status_report(store, datetime.now(UTC), read_progress(folder))
    if not watch:
        output.show(report, as_json=as_json)
        return
    try:
        while True:
            output.show_over(report)
            time.sleep(_WATCH_SECONDS)
            with Database.open(database, read_only=True) as store:
                report = status_report(store, datetime.now(UTC), read_progress(folder))
    except Stopped:
        return  # asked to end


def merge(
    into: Annotated[str, typer.Argument(metavar="INTO", help=_INTO_HELP)],
    sources: Annotated[
        list[str], typer.Argument(metavar="FROM", help="The databases or tables to read: files or URLs.")
    ],
    as_json: AsJson = False,
) -> None:
    """Merge several databases into one, or several tables.

    Measurements that INTO already holds stay as they are. A merge that was stopped goes on where it was. Of two rows
    of tables for one problem, the one with more evidence is kept, and those that differ are named.
    """
    if into.endswith(".json"):
        _merge_tables(Path(into), sources, as_json)
        return
    with show_work("merging databases", quiet=as_json), ExitStack() as opened:
        from gemmtune.engine.report.database import merge_report
        from gemmtune.engine.store.database import Database
        from gemmtune.engine.store.merge import merge as merge_databases

        others = {s: opened.enter_context(Database.open(s, read_only=True)) for s in dict.fromkeys(sources)}
        target = opened.enter_context(Database.open(into))
        merged = {source: merge_databases(target, other) for source, other in others.items()}
    output.show(merge_report(merged), as_json=as_json)


def forget(
    database: Annotated[str, typer.Argument(metavar="DB", help="The campaign's database: file, folder or URL.")],
    board: Annotated[str, typer.Option(metavar="UUID", help="The GPU, as nvidia-smi -L and gemmtune status name it.")],
    since: Annotated[str, typer.Option(metavar="TIME", help=_SINCE_HELP)] = "",
    as_json: AsJson = False,
) -> None:
    """Withdraw what one GPU measured.

    The rows are kept in the database, with the time of their withdrawal, and not used. The next campaign measures their
    configs again. A campaign withdraws by itself what a GPU measured that it finds to be bad.
    """
    try:
        at = datetime.fromisoformat(since).astimezone(UTC).isoformat(timespec="seconds") if since else ""
    except ValueError:
        raise UsageError(f"--since {since!r} is no time; write it as 2026-11-27 or 2026-11-27T08:30") from None
    with show_work("withdrawing", quiet=as_json):
        from gemmtune.engine.report.database import withdrawal_report
        from gemmtune.engine.store.database import Database

        with Database.open(find(database, FileKind.DATABASE)) as store:
            if board not in (known := store.boards.names()):
                there = f"{did_you_mean(board, known)}boards: {', '.join(known) or 'none'}"
                raise UsageError(f"board {shown(board)} measured nothing that {database} holds; {there}")
            number, _ = store.boards.withdraw(board, "by hand", since=at)
    output.show(withdrawal_report(board, at, number), as_json=as_json)


def _merge_tables(into: Path, sources: Sequence[str], as_json: bool) -> None:
    with show_work("merging tables", quiet=as_json):
        from gemmtune.engine.api.table import Table, read_table
        from gemmtune.engine.report.tables import merged_tables_report
        from gemmtune.engine.tables.diff import merge_tables

        paths = dict.fromkeys([*([str(into)] if into.exists() else []), *sources])
        merged, conflicts = merge_tables({path: read_table(path) for path in paths})
        Table.of(merged).save(into)
    output.show(merged_tables_report(merged, conflicts), as_json=as_json)


def _write_studies(source: str, url: str, as_json: bool) -> None:
    from gemmtune.engine.report.files import is_database
    from gemmtune.engine.report.progress.display import progress_bar
    from gemmtune.engine.store.database import Database

    if not is_database(source):
        raise UsageError(f"--optuna writes what a database holds, and {source} is none: name the database")
    require_extra("study", "show --optuna", "optuna")
    from gemmtune.engine.report.optuna_study import studies_report, write_studies

    with Database.open(source, read_only=True) as store, progress_bar("trials", quiet=as_json) as count:
        written = write_studies(store, url, count)
    output.show(studies_report(written, url), as_json=as_json)
