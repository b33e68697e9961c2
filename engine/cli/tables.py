"""The commands of tables: show, verify, diff and export."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.cli import output
from gemmtune.engine.cli.choices import Kind, completed, one_of
from gemmtune.engine.cli.configs import AsCode, RowOf, print_code
from gemmtune.engine.cli.options import (
    NO_BINARIES_HELP,
    AsJson,
    Builders,
    DatabaseUrl,
    Fails,
    Replayed,
    Where,
    in_output,
    named,
    plan_option,
    refuse_others,
)
from gemmtune.engine.execution.hosts import LOCAL
from gemmtune.engine.io.blame import account
from gemmtune.engine.io.importing import imported, parse_callable
from gemmtune.engine.io.paths import FileKind, find
from gemmtune.engine.io.printing import print_notice, print_text
from gemmtune.engine.records.errors import GemmtuneError, Stopped, TableError, UsageError
from gemmtune.engine.report.layout import Report
from gemmtune.engine.report.progress.work import show_work
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.seams.plugin_class import adopted
from gemmtune.engine.store.files import write_whole
from gemmtune.engine.toolchain.installed import require_extra
from gemmtune.engine.toolchain.releases import TORCH_VERSIONS

if TYPE_CHECKING:
    from gemmtune.engine.api.reporting import Joined

_SHOWN_HELP = "A table, an exported table, landscapes, a run, a campaign's folder, or a database: file or URL."
_OPTUNA_HELP = "Write the database's tasks as Optuna studies to this storage, for example sqlite:///studies.db."
_HTML_HELP = "Write the report of a table, a campaign's folder or a database as one page, too."
_DEVICE_HELP = "The GPU, where a database has several, or --graphs has no table. [default for --graphs: H200]"
_in_graphs = partial(typer.Option, rich_help_panel="Graphs")
_GRAPHS_HELP = (
    "Show instead which m share a compiled graph, what ends it, and the rows that it uses: all layers of the table, or "
    "a linear layer by its problem (1x1280x3420:bf16:nt), or a model or function by MODULE:CALL, as capture takes it; "
    "these need no PATH."
)
_GRAPH_INPUT_HELP = "A tensor of MODULE:CALL, as for gemmtune capture, with one open size: bf16[m:1..4096,3420]."
_TORCH_HELP = (
    f"The torch version: {', '.join(TORCH_VERSIONS)}, or another one if installed. [default: the installed one]"
)
_INPUT_GRAD_HELP = "The input needs a gradient, too, as inside a model."
_REFRESH_HELP = "Only rows made with another driver, torch or Triton than those here; the others stay as they are."
_TO_HELP = (
    f"The consumer to write for, {one_of(Kind.EXPORTERS)}; or a class, ./FILE.py:CLASS. [default: inductor; of a new "
    "table, all that run its rows]"
)
_EXPORTED_HELP = (
    "A table (table.json or a campaign's folder), or a database. Several of one GPU become one new table, those of "
    "several GPUs one folder."
)
_EXPORT_OUT_HELP = (
    "Folder; files go to OUT/CONSUMER, a new table to OUT/table.json. With --warm, the file. [default: the first "
    "source's folder; warm.bin]"
)
_WARM_HELP = (
    "Compile a model ahead of serving instead, at every m of an exported table: MODULE:FUNCTION takes m and calls the "
    "compiled model with an input of that m."
)
_SHA256_HELP = "Refuse an exported table whose bytes have another digest than this one, which sha256sum prints."
_READ = {
    "--as": ("problem", "form"),
    "--live": ("live", "address"),
    "--optuna": ("optuna", "as_json"),
    "--graphs": ("graphs", "inputs", "torch", "grad", "input_grad", "padding", "device", "csv", "as_json"),
    "--html": ("html", "device", "sort", "contains", "csv", "as_json"),
    "PATH": ("sort", "contains", "csv", "as_json"),
}
"""Parameters that each use of `show` reads beside PATH."""
_NEW = "New table"
_in_warm = partial(typer.Option, rich_help_panel="Ahead of serving")
_LIVE_HELP = "Serve a page of a running campaign to browsers of this machine, until Ctrl-C."
_ADDRESS_HELP = "Where --live listens; port 0 takes a free one."
_CSV_HELP = "Print the lines of the first table as CSV, with the numbers as they are shown."


def show(
    context: typer.Context,
    source: Annotated[str | None, typer.Argument(metavar="PATH", help=_SHOWN_HELP)] = None,
    sort: Annotated[str | None, typer.Option(metavar="COLUMN", help="Sort the lines by this column.")] = None,
    contains: Annotated[str, typer.Option("--filter", metavar="TEXT", help="Only lines that have this text.")] = "",
    device: Annotated[str | None, named(Kind.DEVICES, _DEVICE_HELP)] = None,
    graphs: Annotated[str | None, _in_graphs(metavar="all|P|MODULE:CALL", help=_GRAPHS_HELP)] = None,
    inputs: Annotated[list[str] | None, _in_graphs("--input", metavar="SPEC", help=_GRAPH_INPUT_HELP)] = None,
    torch: Annotated[str | None, _in_graphs(metavar="VERSION", help=_TORCH_HELP)] = None,
    grad: Annotated[bool, _in_graphs("--grad/--no-grad", help="Whether the weights need a gradient.")] = True,
    input_grad: Annotated[bool, _in_graphs("--input-grad", help=_INPUT_GRAD_HELP)] = False,
    padding: Annotated[bool, _in_graphs("--padding/--no-padding", help="Inductor's setting shape_padding.")] = True,
    html: Annotated[Path | None, in_output(metavar="FILE", help=_HTML_HELP)] = None,
    optuna: Annotated[str | None, in_output(metavar="URL", help=_OPTUNA_HELP)] = None,
    csv: Annotated[bool, in_output("--csv", help=_CSV_HELP)] = False,
    live: Annotated[bool, in_output("--live", help=_LIVE_HELP)] = False,
    address: Annotated[str, in_output(metavar="HOST:PORT", help=_ADDRESS_HELP)] = "127.0.0.1:0",
    problem: RowOf = None,
    form: AsCode = None,
    as_json: AsJson = False,
) -> None:
    """Print a table, landscapes, or the tasks of a database.

    Takes every file that gemmtune writes, exported tables included, and a campaign's folder. The page shows what was
    gained per problem, how the search went, and every row; it loads nothing, and opens in a browser by double click.
    With --as, prints the kernel of a table's row: a program that launches and checks it, its code, or its config.
    Graphs are those of a dynamic m with a table's options; they need neither torch nor a GPU, except that MODULE:CALL
    is traced with the installed torch.
    """
    if as_json and (sort is not None or contains or csv):
        raise UsageError("--json prints all that there is, in order; leave out --sort, --filter and --csv")
    if source is None and graphs is None:
        raise UsageError("name what to show: a table, a campaign's folder, a database, landscapes or another file")
    uses = {"--as": problem or form, "--live": live, "--optuna": optuna, "--graphs": graphs, "--html": html}
    use = next((each for each, given in uses.items() if given), "PATH")
    refuse_others(context, f"show {use}", "source", *_READ[use])
    if source is not None and (problem is not None or form is not None):
        print_code(source, problem, form)
        return
    if source is not None and live:
        from gemmtune.engine.report.live.server import serve

        with suppress(Stopped):  # asked to end
            serve(source, address, lambda url: print_text(f"{url} shows {source} until Ctrl-C"))
        return
    if source is not None and optuna is not None:
        _write_studies(source, optuna, as_json)
        return
    with show_work(f"reading {source or graphs}", quiet=as_json):
        if graphs is not None:
            from gemmtune.engine.api.table import read_table
            from gemmtune.engine.consumers.inductor.report.explain import graphs_report

            table = read_table(source) if source else None
            gradients = {"weight_grad": grad, "input_grad": input_grad}
            report = graphs_report(graphs, inputs or (), table, device, torch, shape_padding=padding, **gradients)
        else:
            from gemmtune.engine.api.showing import file_report

            report = file_report(str(source)).arranged(sort, contains)
        if html is not None:
            from gemmtune.engine.api.reporting import report as write_page

            write_page(str(source), html, device=device)
    if csv:
        print_text(report.to_csv())
    else:
        output.show(report, as_json=as_json)
    if html is not None and not as_json and not csv:
        print_text(f"written: {html}")


def verify(
    table: Annotated[Path, typer.Argument(help="The table: table.json or a campaign's folder.")],
    out: Annotated[Path, in_output(help="Folder for the repaired table and the database.")] = Path("verified"),
    margin: Annotated[float | None, plan_option("margin", "the table's")] = None,
    replay: Replayed = None,
    database: DatabaseUrl = None,
    fleet: Where = LOCAL,
    builders: Builders = None,
    refresh: Annotated[bool, typer.Option("--refresh", help=_REFRESH_HELP)] = False,
    fail: Fails = True,
    as_json: AsJson = False,
) -> None:
    """Measure a table's rows again, after an upgrade or elsewhere.

    Times the contenders of every row and writes OUT/table.json with the new times; a row that does not hold is replaced
    by its best contender. A row holds if its choice works and is at most 2 % slower than the best contender. OUT keeps
    the measurements. With --database, nothing is measured again that DB holds. The exit status is 1 if a row or a range
    does not hold, and 0 with --no-fail.
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
        print_text(f"written: {', '.join(map(str, found.written))}")
    raise typer.Exit(int(fail and not found.holds))


def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="A table, or a campaign's folder.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="The table to compare it with.")],
    html: Annotated[Path | None, in_output(metavar="FILE", help="Write the differences as a page, too.")] = None,
    fail: Fails = True,
    as_json: AsJson = False,
) -> None:
    """List the rows in which two tables differ.

    A row differs if only one table has it, if its winner changed, or if the winner's time changed beyond both
    intervals or has other evidence or another protocol. The exit status is 1 if any row differs, or if one table alone
    is batch-invariant, and 0 with --no-fail.
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
    raise typer.Exit(int(fail and not found.same))


def export(
    context: typer.Context,
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE", help=_EXPORTED_HELP)],
    to: Annotated[
        str | None, typer.Option(metavar="CONSUMER", help=_TO_HELP, autocompletion=completed(Kind.EXPORTERS))
    ] = None,
    out: Annotated[Path | None, in_output(help=_EXPORT_OUT_HELP)] = None,
    device: Annotated[
        str | None, typer.Option(help="Take this device of a database; refuse a table of another.")
    ] = None,
    estimated: Annotated[bool, typer.Option("--estimated", help="Export estimated rows, too.")] = False,
    objective: Annotated[str, plan_option("objective", group=_NEW)] = Plan.objective,
    margin: Annotated[float, plan_option("margin", group=_NEW)] = Plan.margin,
    warm: Annotated[str | None, _in_warm(metavar="MODULE:FUNCTION", help=_WARM_HELP)] = None,
    sha256: Annotated[str | None, _in_warm("--sha256", metavar="DIGEST", help=_SHA256_HELP)] = None,
    no_binaries: Annotated[bool, _in_warm("--no-binaries", help=NO_BINARIES_HELP)] = False,
    as_json: AsJson = False,
) -> None:
    """Write tables as the files that their consumers load.

    Of a database, writes a table of everything that it knows, and measures nothing. Of two rows of tables for one
    problem and GPU, the one with more evidence is kept, and those that differ are named. A table of this GPU that is in
    OUT is replaced, and the rows that differ are named; its rows of kernels between the products stay. One of another
    GPU stays, and the command ends. Tables of several GPUs become one folder, whose loader picks the table of its GPU.
    With --warm, a serving process that loads the file with torch.compiler.load_cache_artifacts compiles nothing.
    """
    if warm is not None:
        refuse_others(context, "export --warm", "sources", "warm", "out", "sha256", "no_binaries")
        _warm_up(sources, warm, out or Path("warm.bin"), sha256, binaries=not no_binaries)
        return
    if sha256 is not None or no_binaries:
        raise UsageError("--sha256 and --no-binaries are for --warm: name the call, or leave them out")
    with show_work(f"exporting {', '.join(sources)}", quiet=as_json):
        from gemmtune.engine.api.output_folder import left_behind, with_packages
        from gemmtune.engine.api.reporting import tables_of
        from gemmtune.engine.tables.export import left_out_line

        joined = tables_of(sources, objective=objective, margin=margin, device=device)
        folder = out or joined.folder
        if folder is None:
            raise UsageError("name the folder of the new table: --out FOLDER")
        if joined.conflicts is not None:
            report, notices, broken = _write_new(joined, len(sources) > 1, folder, to, estimated)
        else:
            refuse_others(context, "export of a table", "sources", "to", "out", "device", "estimated", "as_json")
            to = adopted(Exporter, to or "inductor")
            written = joined.tables[0].export(to, folder, estimated=estimated, beside=joined.tables[1:])
            paths, left = [*map(str, with_packages(written))], left_behind(folder / to, written)
            report, broken = Report({"written": paths}, ["\n".join(paths)]), False
            notices = [f"gemmtune: {left}"] if left else []
            lines = [left_out_line(to, table) for table in joined.tables]
            notices += [f"gemmtune: {line}" for line in lines if line]
    output.show(report, as_json=as_json)
    for line in notices:
        print_notice(line)
    if broken:
        raise typer.Exit(2)


def _write_new(
    joined: Joined, is_merged: bool, folder: Path, to: str | None, estimated: bool
) -> tuple[Report, list[str], bool]:
    """Write a new table with its exports; return its report, lines of notice, and whether an exporter is broken."""
    from gemmtune.engine.api.output_folder import make_folder, with_packages
    from gemmtune.engine.api.reporting import over_earlier
    from gemmtune.engine.api.tune_result import export_everywhere
    from gemmtune.engine.report.tables import merged_tables_report, table_report

    path = folder / "table.json"
    make_folder(folder)
    table, notice = over_earlier(path, joined.tables[0])
    table.save(path)
    if to is None:
        written, refusals, broken = export_everywhere(table, folder, estimated=estimated)
    else:
        written, refusals, broken = with_packages(table.export(to, folder, estimated=estimated)), [], []
    report = merged_tables_report(table, joined.conflicts or ()) if is_merged else table_report(table)
    text = "\n".join([*refusals, "written:", *(f"  {each}" for each in (path, *written))])
    return Report(report.record, [*report.sections, text]), notice.splitlines(), bool(broken)


def _warm_up(sources: list[str], call: str, out: Path, sha256: str | None, *, binaries: bool) -> None:
    """Compile a model at every m of an exported table into a file."""
    if len(sources) > 1:
        raise UsageError("--warm compiles for one exported table: inductor_table.json, or its folder")
    sys.path.insert(0, str(Path.cwd()))
    with show_work(f"compiling {call}", quiet=False):
        parse_callable(call)
        path = Path(find(sources[0], FileKind.INDUCTOR))
        sizes, artifacts = _compiled(path, call, sha256=sha256, binaries=binaries)
    write_whole(out, artifacts)
    print_text(f"{out}: {len(artifacts)} B, called at m = {', '.join(map(str, sizes))}")


def _compiled(table: Path, call: str, *, sha256: str | None, binaries: bool) -> tuple[tuple[int, ...], bytes]:
    """Return every m of a table, and Inductor's cached code of a call at them."""
    require_extra("triton", "export --warm", "torch", "triton")
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
