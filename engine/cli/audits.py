"""The command that examines the tables of serving engines: audit."""

from pathlib import Path
from typing import Annotated

import typer

from gemmtune.engine.cli import output
from gemmtune.engine.cli.choices import Kind
from gemmtune.engine.cli.options import AsJson, named
from gemmtune.engine.io.printing import print_text
from gemmtune.engine.records import catalogue
from gemmtune.engine.report.progress.work import show_work
from gemmtune.engine.store.files import write_whole

__all__ = ["audit"]

_SOURCE_HELP = "A folder, a wheel, or an installed package: vllm or sglang."
_DEVICE_HELP = "Only the files that the engine loads on this device, for example H200. [default: all files]"
_TRITON_HELP = "The Triton version that the engine runs with. [default: the one that the package requires]"

_TABLE_HELP = "A table (table.json) of the engine's layers: say what each entry loses against its rows."


def audit(
    source: Annotated[str, typer.Argument(metavar="PATH|PACKAGE", help=_SOURCE_HELP)],
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
    from gemmtune.engine.report.audit.report import audit_report
    from gemmtune.engine.tables.serving.audit import audit as examine_files
    from gemmtune.engine.tables.serving.losses import entry_losses, with_losses
    from gemmtune.engine.tables.table_file import read_table

    with show_work(f"reading {source}", quiet=as_json):
        measured = read_table(table) if table is not None else None
        found = examine_files(source, catalogue.device(device) if device else None, triton)
        losses = () if measured is None else entry_losses(found, measured)
        if measured is not None:
            found = with_losses(found, losses, measured.margin)
    if html is not None:
        from gemmtune.engine.report.audit.page import audit_html  # matplotlib takes a while to import

        write_whole(html, audit_html(found).encode())
    output.show(audit_report(found, losses), as_json=as_json)
    if html is not None and not as_json:
        print_text(f"written: {html}")
    raise typer.Exit(0 if found.holds else 1)
