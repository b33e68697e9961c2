"""The commands of one config: measure it, and print it as code, for `gemmtune show`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from gemmtune.engine.cli import output
from gemmtune.engine.cli.choices import Kind
from gemmtune.engine.cli.options import (
    AsJson,
    Builders,
    DatabaseUrl,
    Kernels,
    LockClocks,
    Problems,
    Replayed,
    Where,
    in_output,
    in_problems,
    named,
)
from gemmtune.engine.execution.hosts import LOCAL
from gemmtune.engine.io.printing import print_text
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.progress.work import show_work

_CONFIG_HELP = 'A config, "BLOCK_M=64 num_warps=4", with a value per param of the space. Repeat for more.'
_SPACE_HELP = "The space of the configs. [default: the one that the problem is tuned in]"
_TABLE_HELP = "A table whose row is measured, too. [default: OUT/table.json, if it is there]"
_FORMS = ("triton", "ptx", "sass", "ncu", "config")
_AS_HELP = (
    "Print the kernel of a table's row: triton, a program that launches and checks it; ptx; sass; ncu, the commands "
    "that profile it; or config, to paste. It is built here for the table's GPU."
)
_ROW_HELP = "The row for --as; of your own kernel, triton:FILE.py:CLASS:SIZE=N."
AsCode = Annotated[
    str | None,
    typer.Option("--as", metavar="FORM", help=_AS_HELP, autocompletion=lambda: list(_FORMS), rich_help_panel="Code"),
]
RowOf = Annotated[str | None, typer.Option("--problem", metavar="P", help=_ROW_HELP, rich_help_panel="Code")]


def measure(
    problem: Problems = None,
    kernel: Kernels = None,
    config: Annotated[list[str] | None, in_problems(metavar="NAME=VALUE", help=_CONFIG_HELP)] = None,
    space: Annotated[str | None, named(Kind.SPACES, _SPACE_HELP, "Problems")] = None,
    table: Annotated[Path | None, in_problems(metavar="TABLE", help=_TABLE_HELP)] = None,
    out: Annotated[Path, in_output(help="Folder of a campaign, or a new one.")] = Path("out"),
    replay: Replayed = None,
    database: DatabaseUrl = None,
    fleet: Where = LOCAL,
    builders: Builders = None,
    lock_clocks: LockClocks = None,
    as_json: AsJson = False,
) -> None:
    """Time configs of yours against the row and the library.

    On a GPU, the kernels of a problem run in paired rounds: your configs, the table's row, the fastest kernel that the
    database knows, and the vendor library. Without a GPU the recorded landscapes answer. The database keeps everything,
    and the next campaign with it may ship your config. The exit status is 1 if a config of yours fails.
    """
    with show_work("at work", quiet=as_json):
        from gemmtune.engine.api.configs.measuring import measure as measure_configs
        from gemmtune.engine.report.progress.display import show_progress

    with show_progress(quiet=as_json) as callbacks:
        found = measure_configs(
            [*(problem or ()), *(f"triton:{each}" for each in kernel or ())],
            config or (),
            space=space,
            table=table,
            backend=replay or "auto",
            fleet=fleet,
            ray_address=os.environ.get("RAY_ADDRESS"),
            builders=builders,
            lock_clocks=lock_clocks,
            callbacks=callbacks,
            database=database,
            out=out,
        )
    output.show(found.report, as_json=as_json)
    raise typer.Exit(0 if found.holds else 1)


def print_code(source: str, problem: str | None, form: str | None) -> None:
    """Print the kernel that a table runs for a problem, in one form.

    Raises:
        UsageError: the problem or the form is missing, or as `code_of`.
    """
    if problem is None or form is None:
        missing = "--problem P, the row" if problem is None else f"--as FORM, one of {', '.join(_FORMS)}"
        raise UsageError(f"a row's kernel needs --problem and --as: add {missing}")
    with show_work("building", quiet=False):
        from gemmtune.engine.api.table import read_table

        text = read_table(source).code(problem, form, source)
    print_text(text.expandtabs())
