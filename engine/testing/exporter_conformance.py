"""Conformance checks for exporters, which need only the exporter's class."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath, PureWindowsPath

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.testing._contract import require, run_alone

__all__ = ["CHECKS", "check_exporter", "example_table"]

_DEVICE = catalogue.device("H200")


def example_table(exporter: type[Exporter] = Exporter) -> Table:
    """Return a table of three bf16 problems with the exporter's own example, by default the vendor library's kernel."""
    names = ("16x4096x4096:bf16:nt", "2048x4096x4096:bf16:nt", "512x1280x3424:bf16:nn")
    return Table(_DEVICE, tuple(_row(name, *exporter.example) for name in names), "latency")


def check_exporter(exporter: type[Exporter]) -> None:
    """Export `example_table` and variants of it, and check texts, file names, repeatability and refusals.

    Example:
        >>> from gemmtune.engine.tables.inductor.exporter import InductorExporter
        >>> check_exporter(InductorExporter)

    Raises:
        ContractError: the exporter broke its contract; the message says how.
    """
    for check in CHECKS:
        check(exporter)


def writes_text(exporter: type[Exporter]) -> None:
    """Check that the exporter writes at least one file, and texts that UTF-8 can encode."""
    written = _export(exporter, example_table(exporter))
    require(bool(written), exporter, "wrote no file")
    for name, text in written.items():
        require(isinstance(text, str), exporter, f"{name} is {type(text).__name__}, not text")
        text.encode()


def names_plain_files(exporter: type[Exporter]) -> None:
    """Check that no file name leaves its folder, on any system."""
    for name in _export(exporter, example_table(exporter)):
        plain = name not in ("", ".", "..") and PurePosixPath(name).name == name == PureWindowsPath(name).name
        require(plain, exporter, f"{name!r} is not a plain file name")


def repeats_itself(exporter: type[Exporter]) -> None:
    """Check that one table gives equal texts a second time and from another instance."""
    table, instance = example_table(exporter), exporter()
    first = dict(instance.export(table))
    require(dict(instance.export(table)) == first, exporter, "the second export of one instance differs")
    require(dict(exporter().export(table)) == first, exporter, "another instance's export differs")


def tells_tables_apart(exporter: type[Exporter]) -> None:
    """Check that a table without its last row gives another text."""
    table = example_table(exporter)
    shorter = replace(table, rows=table.rows[:-1])
    require(
        _export(exporter, shorter) != _export(exporter, table),
        exporter,
        "writes a shorter table alike",
    )


def accepts_no_rows(exporter: type[Exporter]) -> None:
    """Check that a table without rows is exported."""
    written = _export(exporter, replace(example_table(exporter), rows=()))
    require(bool(written), exporter, "wrote no file for an empty table")


def refuses_an_unknown_space(exporter: type[Exporter]) -> None:
    """Check that a row of an unknown space raises a one-line TableError that names the space and the problem."""
    row = _row("64x64x64:bf16:nt", "no_such_space", Config({}))
    try:
        exporter().export(replace(example_table(exporter), rows=(row,)))
    except TableError as error:
        named = "no_such_space" in str(error) and row.problem.name in str(error)
        require(named, exporter, f"its refusal does not name both space and problem: {error}")
        require("\n" not in str(error), exporter, "its refusal is longer than one line")
    else:
        require(False, exporter, "exported a row of a space that does not exist")


def is_pure_in_a_fresh_process(exporter: type[Exporter]) -> None:
    """Check that exporting loads no heavy package, leaves no file, and does not depend on the hash seed."""
    digests = set()
    for seed in ("1", "2"):
        report = run_alone(_PROBE, exporter, seed)
        require(not report["loaded"], exporter, f"imported {report['loaded']}")
        require(not report["left"], exporter, f"left {report['left']} in the working directory")
        digests.add(report["digest"])
    digests.add(_digest(_export(exporter, example_table(exporter))))
    require(len(digests) == 1, exporter, "writes other text in another process")


CHECKS: tuple[Callable[[type[Exporter]], None], ...] = (
    writes_text,
    names_plain_files,
    repeats_itself,
    tells_tables_apart,
    accepts_no_rows,
    refuses_an_unknown_space,
    is_pure_in_a_fresh_process,
)
"""Checks that `check_exporter` runs, in order."""

_PROBE = """
import importlib, json, os, sys
from gemmtune.engine.testing import exporter_conformance as conformance
from gemmtune.engine.testing._contract import HEAVY
module, name = sys.argv[1:]
exporter = getattr(importlib.import_module(module), name)
digest = conformance._digest(exporter().export(conformance.example_table(exporter)))
loaded = [package for package in HEAVY if package in sys.modules]
print(json.dumps({"digest": digest, "loaded": loaded, "left": os.listdir()}))
"""


def _export(exporter: type[Exporter], table: Table) -> dict[str, str]:
    return dict(exporter().export(table))


def _digest(written: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(sorted(written.items())).encode()).hexdigest()


def _row(problem: str, space: str, config: Config) -> Row:
    choice = Choice(
        space=space,
        config=config,
        time_ns=20_000.0,
        low_ns=19_900.0,
        high_ns=20_100.0,
        samples=32,
        evidence=Evidence.MEASURED,
        toolchain="torch 2.13.0",
        protocol="graph-cold-l2",
    )
    baseline = choice if space == "aten" else None
    return Row(Problem.parse(problem), (choice,), baseline, 0.0, (choice.config,), regret_bound=0.002)
