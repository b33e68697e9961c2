"""The command line: the only reader of the terminal and of environment variables."""

from __future__ import annotations

import shlex
import sys
from importlib.metadata import version
from typing import Annotated, cast

import typer

from gemmtune.engine.cli.campaigns import record, tune
from gemmtune.engine.cli.descriptions import describe_space, doctor, explain
from gemmtune.engine.cli.output import complain
from gemmtune.engine.cli.stopping import Stopped, stoppable
from gemmtune.engine.cli.studies import compare, replay
from gemmtune.engine.cli.tables import diff, export, merge, show, status, verify, warmup
from gemmtune.engine.records.errors import GemmtuneError

__all__ = ["main"]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"gemmtune {version('gemmtune')}")
        raise typer.Exit


app = typer.Typer(
    name="gemmtune",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _command in (tune, record, replay, compare, show, verify, diff, export, warmup, status, merge):  # order of --help
    app.command()(_command)
app.command("space")(describe_space)
app.command()(doctor)
app.command()(explain)


@app.callback()
def _gemmtune(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Find the fastest config of a GEMM kernel for every shape, and ship the answer as a table."""


# The base class of typer's errors about a command line, in click or in typer's own copy of click.
_CommandLineError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)


def main() -> None:
    """Run the command line; end a wrong use with one line on stderr and exit status 2."""
    try:
        with stoppable():
            status = app(sys.argv[1:] or ["--help"], standalone_mode=False)
        sys.exit(status)
    except GemmtuneError as error:
        complain(str(error))
        sys.exit(2)
    except _CommandLineError as error:
        command = error.ctx.command_path if error.ctx else "gemmtune"
        complain(f"{error.format_message().rstrip('.')}; see {command} --help")
        sys.exit(2)
    except Stopped as stopped:
        command = shlex.join(["gemmtune", *sys.argv[1:]])
        complain(f"stopped; what was measured is kept, and tune and record go on where they were: {command}")
        sys.exit(128 + stopped.signal)
