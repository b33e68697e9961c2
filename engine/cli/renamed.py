"""Earlier names of commands and options, which answer for a release with today's."""

import shlex
from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from gemmtune.engine.io.printing import print_notice
from gemmtune.engine.records.errors import UsageError

_OPTIONS = {"--db": "--database", "--samplers": "--sampler"}


def renamed(arguments: Sequence[str]) -> list[str]:
    """Return a command line in today's names; where it had earlier ones, say on stderr which it is.

    Raises:
        UsageError: an option of an earlier command has no value, or an argument is missing.
    """
    parts = [each.partition("=") for each in arguments]
    spelled = ["".join((_OPTIONS.get(name, name), *value)) for name, *value in parts]
    if spelled and spelled[0] in _COMMANDS:
        options, respelled = _COMMANDS[spelled[0]]
        parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
        for option, default in options.items():
            parser.add_argument(option, default=default, action="append" if default == [] else "store")
        try:
            spelled = respelled(*parser.parse_known_args(spelled[1:]))
        except ArgumentError as error:
            raise UsageError(str(error)) from None
        if "" in spelled:
            raise UsageError(
                f"{arguments[0]} lacks an argument, and is another command now: gemmtune {spelled[0]} --help"
            )
    if spelled != arguments:
        print_notice(f"gemmtune: the command is now gemmtune {shlex.join(spelled)}")
    return spelled


def _is_option(text: str) -> bool:
    return text.startswith("-")


def _replay(found: Namespace, others: list[str]) -> list[str]:
    return ["compare", *others, "--sampler", found.sampler, "--budget", found.budget, "--seeds", found.seeds]


def _report(found: Namespace, others: list[str]) -> list[str]:
    path = next((each for each in others if not _is_option(each)), "")
    beside = Path(path) if Path(path).is_dir() else Path() if "://" in path else Path(path).parent
    device = ["--device", found.device] if found.device else []
    return ["show", *others, *device, "--html", found.out or str(beside / "report.html")]


def _table(found: Namespace, others: list[str]) -> list[str]:
    named = [str(Path(each) / "measurements.db") if Path(each).is_dir() else each for each in others]
    return ["export", *named, "--out", found.out]


def _forget(found: Namespace, others: list[str]) -> list[str]:
    others = sorted(others, key=_is_option)
    since = ["--since", found.since] if found.since else []
    return ["campaigns", *others[:1], "forget", found.board, *since, *others[1:]]


def _merge(_: Namespace, others: list[str]) -> list[str]:
    into, *sources = sorted(others, key=_is_option) or [""]
    if not into.endswith(".json"):
        return ["campaigns", into, "merge", *sources]
    path = Path(into)
    folder = path.parent if path.name == "table.json" else path.with_suffix("")
    return ["export", *([into] if path.exists() else []), *sources, "--out", str(folder)]


def _explain(found: Namespace, others: list[str]) -> list[str]:
    inputs, _, outputs = (found.linear or "").partition(":")
    what = found.call or (f"1x{outputs}x{inputs}:{found.dtype}:nt" if found.linear else "all")
    sizes = (each.replace("m", "m:1..65536", 1).replace("x", ",") for each in found.input)
    given = (text for size in sizes for text in ("--input", f"{found.dtype}[{size}]"))
    return ["show", *others, "--graphs", what, *given]


_Respelled = Callable[[Namespace, list[str]], list[str]]
_COMMANDS: dict[str, tuple[dict[str, str | list[str] | None], _Respelled]] = {
    "adapt": ({}, lambda _, others: ["check", *others, "--draft"]),
    "audit": ({}, lambda _, others: ["check", *others]),
    "explain": ({"--linear": None, "--call": None, "--input": [], "--dtype": "bf16"}, _explain),
    "forget": ({"--board": "", "--since": ""}, _forget),
    "init": ({}, lambda _, others: ["tune", "--init", *(others or ["campaign.toml"])]),
    "merge": ({}, _merge),
    "record": ({}, lambda _, others: ["sweep", *others]),
    "replay": ({"--sampler": "transfer", "--budget": "64", "--seeds": "10"}, _replay),
    "report": ({"--out": "", "--device": ""}, _report),
    "space": ({}, lambda _, others: ["list", "spaces", *others]),
    "status": ({}, lambda _, others: ["campaigns", *others]),
    "table": ({"--out": "out"}, _table),
    "warmup": ({"--call": ""}, lambda found, others: ["export", *others, "--warm", found.call]),
}
"""Options of each earlier command that are spelled otherwise now, with their defaults, and today's command line."""
