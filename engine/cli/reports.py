"""The commands that report what is known, as a page, a table or findings: report, table and audit."""

from pathlib import Path
from typing import Annotated

import typer

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.cli import output
from gemmtune.engine.cli.choices import Kind
from gemmtune.engine.cli.options import AsJson, named, plan_option
from gemmtune.engine.io.printing import print_notice, print_text
from gemmtune.engine.report.progress.work import show_work
from gemmtune.engine.store.files import write_whole

_DEVICE = Annotated[str | None, typer.Option(help="The device, where the database has several; for example H200.")]

_SOURCE_HELP = "A tuned file, a folder (of files or of wheels), a wheel, or an installed package; several may follow."
_DEVICE_HELP = "Only the files that the engine loads on this device, for example H200. [default: all files]"
_TRITON_HELP = "The Triton version that the engine runs with. [default: the one that the package requires]"
_TABLE_HELP = "A table (table.json) of the engine's layers: say what each entry loses against its rows."


def report(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A table, a campaign's folder, or a database.")],
    out: Annotated[Path | None, typer.Option(help="The page. [default: report.html beside PATH]")] = None,
    device: _DEVICE = None,
) -> None:
    """Write the report of a campaign as one HTML file.

    The page shows what was gained per problem, how the search went, and every row. It loads nothing, and opens in a
    browser by double click.
    """
    with show_work(f"reading {path}", quiet=False):
        from gemmtune.engine.api.reporting import report as write_page

        page = write_page(path, out, device=device)
    print_text(str(page))


def table(
    database: Annotated[str, typer.Argument(metavar="DB", help="The database: file, folder or URL.")],
    out: Annotated[Path, typer.Option(help="Folder for the table and its exports.")] = Path("out"),
    objective: Annotated[str, plan_option("objective")] = Plan.objective,
    margin: Annotated[float, plan_option("margin")] = Plan.margin,
    device: _DEVICE = None,
    as_json: AsJson = False,
) -> None:
    """Write a table of everything that a database knows.

    Searches and measures nothing. OUT receives table.json and its exports; a table that is there is replaced, and
    the rows that differ are named.
    """
    with show_work(f"reading {database}", quiet=as_json):
        from gemmtune.engine.api.output_folder import make_folder
        from gemmtune.engine.api.reporting import replaced_rows, table_of_database
        from gemmtune.engine.api.tune_result import export_everywhere
        from gemmtune.engine.report.tables import table_report
        from gemmtune.engine.store.database import Database

        make_folder(out)
        with Database.open(database, read_only=True) as store:
            found = table_of_database(store, objective=objective, margin=margin, device=device)
        replaced = replaced_rows(out / "table.json", found)
        found.save(out / "table.json")
        written, refusals, broken = export_everywhere(found, out)
    for line in replaced.splitlines():
        print_notice(line)
    output.show(table_report(found), as_json=as_json)
    if not as_json:
        print_text("\n".join(["", *refusals, "written:", *(f"  {path}" for path in (out / "table.json", *written))]))
    if broken:
        raise typer.Exit(2)


def audit(
    sources: Annotated[list[str], typer.Argument(metavar="PATH|PACKAGE", help=_SOURCE_HELP)],
    device: Annotated[str | None, named(Kind.DEVICES, _DEVICE_HELP)] = None,
    triton: Annotated[str, typer.Option(help=_TRITON_HELP, metavar="VERSION")] = "",
    table: Annotated[Path | None, typer.Option(help=_TABLE_HELP)] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all findings as a page, too.")] = None,
    as_json: AsJson = False,
) -> None:
    """Find stale and broken tuned files of vLLM and SGLang.

    Reads the files of fused MoE and block-fp8 kernels, needs no GPU and imports no engine. The exit status is 1 if a
    file has a fault: the engine fails, computes a wrong result, or runs a config tuned for other work. With a table
    that was tuned on a GPU, entries that lose to its rows are named, too.
    """
    from gemmtune.engine.api.table import read_table
    from gemmtune.engine.consumers.serving.audit import audit_all, joined
    from gemmtune.engine.consumers.serving.losses import EntryLoss, entry_losses, with_losses
    from gemmtune.engine.consumers.serving.report.report import audit_report

    losses: list[EntryLoss] = []
    with show_work(f"reading {', '.join(sources)}", quiet=as_json):
        measured = read_table(table) if table is not None else None
        audits = audit_all(sources, device, triton)
        if measured is not None:
            for index, found in enumerate(audits):
                of_source = entry_losses(found, measured)
                audits[index] = with_losses(found, of_source, measured.margin)
                losses += of_source
        found = joined(audits)
    if html is not None:
        from gemmtune.engine.consumers.serving.report.page import audit_html  # matplotlib takes a while to import

        write_whole(html, audit_html(found).encode())
    output.show(audit_report(found, losses), as_json=as_json)
    if html is not None and not as_json:
        print_text(f"written: {html}")
    raise typer.Exit(0 if found.holds else 1)
