"""The commands that write a page or a table of what is known: report and table."""

from pathlib import Path
from typing import Annotated

import typer

from gemmtune.engine.cli import output
from gemmtune.engine.cli.options import MARGIN_HELP, AsJson
from gemmtune.engine.io.printing import print_text
from gemmtune.engine.records.table import SHIP_MARGIN
from gemmtune.engine.report.progress.work import show_work

__all__ = ["report", "table"]

_MARGIN = Annotated[float, typer.Option(help=MARGIN_HELP)]
_DEVICE = Annotated[str | None, typer.Option(help="The device, where the database has several; for example H200.")]


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
    database: Annotated[str, typer.Argument(metavar="DB", help="The database: file or URL.")],
    out: Annotated[Path, typer.Option(help="Folder for the table and its exports.")] = Path("out"),
    objective: Annotated[str, typer.Option(help="The objective to minimise.")] = "latency",
    margin: _MARGIN = SHIP_MARGIN,
    device: _DEVICE = None,
    as_json: AsJson = False,
) -> None:
    """Write a table of everything that a database knows.

    Searches and measures nothing. OUT receives table.json and its exports; a table that is there is replaced.
    """
    with show_work(f"reading {database}", quiet=as_json):
        from gemmtune.engine.api.output_folder import make_folder
        from gemmtune.engine.api.reporting import table_of_database
        from gemmtune.engine.api.tune_result import export_everywhere
        from gemmtune.engine.report.tables import table_report
        from gemmtune.engine.store.database import Database

        make_folder(out)
        with Database.open(database, read_only=True) as store:
            found = table_of_database(store, objective=objective, margin=margin, device=device)
        found.save(out / "table.json")
        written, refusals, broken = export_everywhere(found, out)
    output.show(table_report(found), as_json=as_json)
    if not as_json:
        print_text("\n".join(["", *refusals, "written:", *(f"  {path}" for path in (out / "table.json", *written))]))
    if broken:
        raise typer.Exit(2)
