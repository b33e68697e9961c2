"""Help in groups of commands and options, whole at 80 columns; and a command's end by an interrupt of its own code."""

from contextlib import AbstractContextManager
from typing import Any, Protocol

import typer
from typer.core import TyperCommand, TyperGroup

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
