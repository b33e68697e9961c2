"""The options that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gemmtune.engine.cli.choices import Kind, completed, completed_problem
from gemmtune.engine.records.errors import UsageError


def named(kind: Kind, help: str, panel: str | None = None) -> Any:  # noqa: A002, ANN401 (names and type of typer)
    """Return an option that takes the name of one of a kind, which a shell completes."""
    return typer.Option(help=help, metavar="NAME", autocompletion=completed(kind), rich_help_panel=panel)


def fraction(given: str | float) -> float:
    """Return the fraction that a text spells, 0.02 or 2%; a default is a number already.

    Raises:
        UsageError: it spells none.
    """
    text = str(given).strip()
    number = text.removesuffix("%")
    try:
        return float(number) / 100 if number != text else float(number)
    except ValueError:
        raise UsageError(f"{given!r} is no fraction: write 0.02 or 2%") from None


def time_span(given: str | float) -> float:
    """Return the seconds that a text spells, 300 or 5m; a default is a number already.

    Raises:
        UsageError: it spells none.
    """
    text = str(given).strip()
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:])
    try:
        return float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        raise UsageError(f"{given!r} is no time: write 300, 5m or 1h") from None


PROBLEM_HELP = (
    "A problem, [BATCHx]MxNxK[:DTYPE[:LAYOUT[:OP]]][:dynamic_m=true], for example 2048x4096x4096:bf16:nt or "
    "16x4096x4096:bf16:nt:addmm."
)
Problems = Annotated[
    list[str] | None,
    typer.Option(
        "--problem",
        metavar="P",
        help=f"{PROBLEM_HELP} Repeat for more.",
        autocompletion=completed_problem,
        rich_help_panel="Problems",
    ),
]
MARGIN_HELP = "Lead over the vendor library, 0.02 or 2%, that a row needs to ship another kernel."
NO_BINARIES_HELP = "Link no binary of the table, as for a process that calls install(binaries=False)."
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for programs.", rich_help_panel="Output")]
_DATABASE_HELP = "Measurements: a file, or the URL of a PostgreSQL server. [default: OUT/measurements.db]"
DatabaseUrl = Annotated[
    str | None, typer.Option("--database", "--db", metavar="DB", help=_DATABASE_HELP, rich_help_panel="Output")
]
SAMPLER_HELP = "The sampler: see gemmtune list samplers; or a class, ./FILE.py:CLASS or MODULE:CLASS."
Builders = Annotated[
    int | None,
    typer.Option(min=1, help="Builder processes. [default: one per core, less one]", rich_help_panel="Where"),
]
Replayed = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Answer from these landscapes (a file, or h200), not a GPU. Repeat for more.",
        rich_help_panel="Where",
    ),
]
_LOCK_HELP = (
    "Lock the SM clock during the campaign, at a clock that every problem holds under the power limit. This changes a "
    "setting of the whole GPU: use it only on a machine that is yours."
)
LockClocks = Annotated[
    int | None, typer.Option("--lock-clocks", min=1, metavar="MHZ", help=_LOCK_HELP, rich_help_panel="Where")
]
