"""Every command of the command line, its help in groups, whole at 80 columns, and how its arguments are refused."""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from typing import Annotated, Any, Protocol, cast

import typer
from typer.core import TyperCommand, TyperGroup

from gemmtune.engine.cli.campaigns import sweep, tune
from gemmtune.engine.cli.captures import bench, capture, problems
from gemmtune.engine.cli.checks import check
from gemmtune.engine.cli.configs import measure
from gemmtune.engine.cli.descriptions import doctor, list_choices
from gemmtune.engine.cli.orders import campaigns
from gemmtune.engine.cli.renamed import renamed
from gemmtune.engine.cli.studies import compare
from gemmtune.engine.cli.tables import diff, export, show, verify
from gemmtune.engine.io.printing import print_text
from gemmtune.engine.io.reading import is_text
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.progress.work import QUIET

_OTHERS = "Options"


class _Formatter(Protocol):
    def section(self, name: str) -> AbstractContextManager[None]: ...

    def write_dl(self, rows: list[tuple[str, str]]) -> None: ...


class Command(TyperCommand):
    """Command whose help has a section per `rich_help_panel` of its options."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 (typer's)
        """Run the command; one whose code raises KeyboardInterrupt, as no signal does here, aborts."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise typer.Abort from error

    def format_options(self, ctx: typer.Context, formatter: _Formatter) -> None:  # type: ignore[override]
        """Write the arguments and each group of options."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                kind = "Arguments" if param.param_type_name == "argument" else _OTHERS
                groups.setdefault(getattr(param, "rich_help_panel", None) or kind, []).append(record)
        if _OTHERS in groups:
            groups[_OTHERS] = groups.pop(_OTHERS)  # last
        for name, records in groups.items():
            with formatter.section(name):
                formatter.write_dl(records)

    def get_short_help_str(self, limit: int = 60) -> str:
        """Return the help's first line; every one fits 60 characters, so that `limit` never cuts it."""
        return (self.help or "").partition("\n")[0]


class Commands(TyperGroup):
    """Group whose help has a section per `rich_help_panel` of its commands."""

    def format_commands(self, ctx: typer.Context, formatter: _Formatter) -> None:  # type: ignore[override]
        """Write each group of commands, in their order."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            panel = str(getattr(command, "rich_help_panel", ""))
            groups.setdefault(panel, []).append((f"{name:<9}", command.get_short_help_str()))
        for panel, rows in groups.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


def _print_version(wanted: bool) -> None:
    if wanted:
        print_text(f"gemmtune {version('gemmtune')}")
        raise typer.Exit


GROUPS: dict[str, dict[str, Callable[..., None]]] = {
    "Tune": {"tune": tune, "measure": measure, "check": check},
    "Look": {"show": show, "diff": diff, "list": list_choices},
    "Ship": {"export": export, "verify": verify},
    "Models": {"capture": capture, "problems": problems, "bench": bench},
    "Research": {"compare": compare, "sweep": sweep},
    "Host": {"doctor": doctor, "campaigns": campaigns},
}
"""Commands by their group, in the order of --help."""

app = typer.Typer(
    name="gemmtune",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _group, _commands in GROUPS.items():
    for _name, _command in _commands.items():
        app.command(_name, cls=Command, rich_help_panel=_group)(_command)


_QUIET = "Show no progress; warnings stay, and what says where results come from. Every command takes it, too."


@app.callback()
def _gemmtune(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help=_QUIET)] = False,
) -> None:
    """Find the fastest config of a GEMM kernel for every shape, and ship the answer as a table."""
    context.call_on_close(partial(QUIET.reset, QUIET.set(quiet)))


# The base class of typer's errors about a command line, in click or in typer's own copy of click.
_CommandLineError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)


def run(arguments: Sequence[str]) -> int:
    """Run a command; return its exit status.

    Raises:
        GemmtuneError: the command line or what it names is wrong.
    """
    for argument in arguments:
        if not is_text(argument):
            raise UsageError(f"argument {argument!r} is not UTF-8; rename the file")
    for before, argument in pairwise(["", *arguments]):
        if not argument.strip() or re.fullmatch(r"--[\w-]+=\s*", argument):
            name = argument.partition("=")[0] or (before if before.startswith("-") else f"after {before!r}")
            raise UsageError(f"the argument {name.strip()} is empty, as of a variable that is not set; leave it out")
    given = [each for each in arguments if each != "--quiet"]
    if given[:1] == ["help"]:
        given = [*given[1:], "--help"]
    given = renamed(given) or ["--help"]
    try:
        return int(app([*(["--quiet"] if "--quiet" in arguments else []), *given], standalone_mode=False) or 0)
    except _CommandLineError as error:
        command = error.ctx.command_path if error.ctx else "gemmtune"
        raise UsageError(f"{error.format_message().rstrip('.')}; see {command} --help") from None
