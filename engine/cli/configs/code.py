"""Print the kernel of a table's row, for `gemmtune show`."""

from typing import Annotated

import typer

from gemmtune.engine.io.printing import print_text
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.progress.work import show_work

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
