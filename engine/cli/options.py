"""The options that several commands share."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from gemmtune.engine.campaign.plan import OPTIONS
from gemmtune.engine.cli.choices import SEAMS, Kind, completed, completed_problem, one_of
from gemmtune.engine.io.options import Value, show_options
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.seams.plugin_class import adopted, class_named
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.sampler_options import options_from, sampler

in_output, in_problems, in_where = (
    partial(typer.Option, rich_help_panel=group) for group in ("Output", "Problems", "Where")
)
"""Option in a group of a command's help."""
_Command = TypeVar("_Command", bound=Callable[..., None])


def named(kind: Kind, help: str, panel: str | None = None) -> Any:  # noqa: A002, ANN401 (names and type of typer)
    """Return an option that takes the name of one of a kind, which a shell completes."""
    return typer.Option(help=help, metavar="NAME", autocompletion=completed(kind), rich_help_panel=panel)


def fraction(given: str | float) -> float:
    """Return the fraction that a text spells, 0.02 or 2%, or a default; raises UsageError for another text."""
    text = str(given).strip()
    number = text.removesuffix("%")
    try:
        return float(number) / 100 if number != text else float(number)
    except ValueError:
        raise UsageError(f"{given!r} is no fraction: write 0.02 or 2%") from None


def time_span(given: str | float) -> float:
    """Return the seconds that a text spells, 300 or 5m, or a default's number; raises UsageError if it spells none."""
    text = str(given).strip()
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:])
    try:
        return float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        raise UsageError(f"{given!r} is no time: write 300, 5m or 1h") from None


def refuse_others(context: typer.Context, use: str, *read: str) -> None:
    """Refuse what is on the command line and one use of the command does not read.

    Args:
        context: of the command.
        use: the use in a user's words, such as `show --live`.
        read: names of the parameters that it reads.

    Raises:
        UsageError: another parameter is on the command line.
    """
    sources = {each: context.get_parameter_source(str(each.name)) for each in context.command.params}
    given = [each for each, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    others = [each.opts[0] for each in given if each.name not in read]
    if others:
        raise UsageError(f"{use} does not read {', '.join(others)}; see {context.command_path} --help")


def integers(name: str, given: str | None) -> tuple[int, ...]:
    """Return the integers that an option lists, 1,16,512; none for None; raises UsageError for another text."""
    texts = () if given is None else tuple(text.strip() for text in given.split(","))
    if all(text.isascii() and text.isdecimal() and len(text) < _DIGITS for text in texts):
        return tuple(map(int, texts))
    raise UsageError(f"{name}={given!r} lists no integers: write {name} 1,16,512")


_DIGITS = 18
_CLASS = ": see gemmtune list samplers; or a class, ./FILE.py:CLASS or MODULE:CLASS"
_SPELLED: dict[Value, tuple[object, str | None, Callable[[str], object] | None, str]] = {
    Value.INTEGER: (int | None, None, None, ""),
    Value.FRACTION: (float | None, "F", fraction, ": 0.02 or 2%"),
    Value.SECONDS: (float | None, "N", time_span, ": 300, 5m or 1h"),
    Value.NAME: (str | None, "NAME", None, ""),
    Value.NAMES: (list[str] | None, "NAME", None, ""),
    Value.SAMPLER: (str | None, "NAME", lambda text: class_named(Sampler, text, Path()), _CLASS),
    Value.PROBLEMS: (list[str] | None, "P", None, ""),
    Value.LIMITS: (bool, None, None, ""),
    Value.FLAG: (bool, None, None, ""),
}
"""Type of each kind of value, its name in help, its parser, and how it is spelled."""


def plan_option(name: str, default: str = "", group: str | None = None) -> Any:  # noqa: ANN401 (type of typer)
    """Return typer's option for an option of a plan.

    Args:
        name: name of the option.
        default: default in words, where typer knows none.
        group: heading in help.
    """
    option = OPTIONS[name]
    _, metavar, parser, spelled = _SPELLED[option.value]
    kind = next((kind for kind, seam in SEAMS.items() if seam is option.of), None)
    if kind and not spelled:
        spelled, parser = f": {one_of(kind)}; or a class, ./FILE.py:CLASS", partial(adopted, option.of)
    repeated = " Repeat for more." if option.value in (Value.NAMES, Value.PROBLEMS) else ""
    return typer.Option(
        f"--{name.replace('_', '-')}",
        help=f"{option.sentence.rstrip('.')}{spelled}.{repeated}" + (f" [default: {default}]" if default else ""),
        min=int(option.least) if option.value is Value.INTEGER else None,
        metavar=metavar,
        parser=parser,
        autocompletion=completed(kind) if kind else completed_problem if option.value is Value.PROBLEMS else None,
        rich_help_panel=group,
    )


def takes_plan_options(command: _Command) -> _Command:
    """Give a command the options of a plan in place of its `**options`, after `kernel`."""
    annotations = {}
    for name, each in OPTIONS.items():
        annotations[each] = Annotated[_SPELLED[each.value][0], plan_option(name, each.shown, each.group)]
    show_options(command, "kernel", annotations)
    return command


PROBLEM_HELP = (
    "A problem, [BATCHx]MxNxK[:DTYPE[:LAYOUT[:OP]]], for example 2048x4096x4096:bf16:nt or "
    "16x4096x4096:bf16:nt:addmm; behind it :dynamic_m=true for any m at launch."
)
Problems = Annotated[
    list[str] | None,
    in_problems("--problem", metavar="P", help=f"{PROBLEM_HELP} Repeat for more.", autocompletion=completed_problem),
]
_KERNEL_HELP = "A class that describes your own Triton kernel; all of its cases are taken. Repeat for more."
Kernels = Annotated[list[str] | None, in_problems("--kernel", metavar="FILE.py:CLASS", help=_KERNEL_HELP)]
_SAMPLER_OPTION_HELP = "Argument of the sampler that --sampler names. Repeat for more."
SamplerOptions = Annotated[
    list[str] | None,
    typer.Option("--sampler-option", metavar="NAME=VALUE", help=_SAMPLER_OPTION_HELP, rich_help_panel="Search"),
]


def with_options(named: str | type[Sampler] | None, options: list[str] | None) -> str | type[Sampler] | None:
    """Return the sampler that a command names with its options; None for none.

    Raises:
        UsageError: there are options and no sampler, or the sampler has no such option.
    """
    if not options:
        return named
    if named is None:
        raise UsageError(f"--sampler-option {options[0]} needs --sampler, whose argument it is")
    return sampler(named, **options_from(options))


NO_BINARIES_HELP = "Link no binary of the table, as for a process that calls install(binaries=False)."
Fails = Annotated[bool, in_output("--fail/--no-fail", help="End with status 1 for what was found.")]

AsJson = Annotated[bool, in_output("--json", help="Print one JSON object for programs.")]
_DATABASE_HELP = "Measurements: a file, or the URL of a PostgreSQL server. [default: OUT/measurements.db]"
DatabaseUrl = Annotated[str | None, in_output("--database", metavar="DB", help=_DATABASE_HELP)]
Builders = Annotated[int | None, in_where(min=1, help="Builder processes. [default: one per core, less one]")]
_FLEET_HELP = (
    "Where to build and measure: local, ray (the cluster of RAY_ADDRESS, one that runs here, or a new one of this "
    "machine) or ray://HOST:PORT."
)
Where = Annotated[str, in_where("--fleet", metavar="WHERE", help=_FLEET_HELP)]
Replayed = Annotated[
    list[Path] | None,
    in_where(metavar="FILE", help="Answer from these landscapes (a file, or h200), not a GPU. Repeat for more."),
]
_LOCK_HELP = (
    "Lock the SM clock during the campaign, at a clock that every problem holds under the power limit. This changes a "
    "setting of the whole GPU: use it only on a machine that is yours."
)
LockClocks = Annotated[int | None, in_where("--lock-clocks", min=1, metavar="MHZ", help=_LOCK_HELP)]
