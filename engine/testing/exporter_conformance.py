"""Conformance checks for exporters, which need only the exporter's class."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.seams.kinds import parse_workload
from gemmtune.engine.tables.export import file_fault
from gemmtune.engine.testing._contract import require, require_lightness, run_checks

_DEVICE = catalogue.device("H200")


def example_table(exporter: type[Exporter] = Exporter) -> Table:
    """Return a table of the exporter's problems with its own example, by default the vendor library's kernel."""
    return Table(_DEVICE, tuple(_row(name, *exporter.example) for name in exporter.example_problems), "latency")


def check_exporter(exporter: type[Exporter]) -> None:
    """Export `example_table` and variants of it, and check texts, file names, repeatability and refusals.

    Example:
        >>> from gemmtune.engine.consumers.inductor.exporter import InductorExporter
        >>> check_exporter(InductorExporter)

    Raises:
        ContractError: the exporter broke its contract; the message says how.
    """
    run_checks(CHECKS, exporter, Exporter)


def writes_texts_to_plain_files(exporter: type[Exporter]) -> None:
    """Check that a table, also one without rows, gives texts for UTF-8, and file names that leave no folder."""
    table = example_table(exporter)
    for rows in (table.rows, ()):
        written = _export(exporter, replace(table, rows=rows))
        require(bool(written), exporter, f"wrote no file for a table of {len(rows)} rows")
        for name, text in written.items():
            fault = file_fault(name, text)
            require(not fault, exporter, fault)


def repeats_itself(exporter: type[Exporter]) -> None:
    """Check that one table gives equal texts a second time and from another instance."""
    table, instance = example_table(exporter), exporter()
    first = dict(instance.export(table))
    require(dict(instance.export(table)) == first, exporter, "the second export of one instance differs")
    require(_export(exporter, table) == first, exporter, "another instance's export differs")


def tells_tables_apart(exporter: type[Exporter]) -> None:
    """Check that a table without its last row gives another text."""
    table = example_table(exporter)
    shorter = _export(exporter, replace(table, rows=table.rows[:-1]))
    require(shorter != _export(exporter, table), exporter, "writes a shorter table alike")


def refuses_an_unknown_space(exporter: type[Exporter]) -> None:
    """Check that a row of an unknown space is refused in a line with space and problem, or written by one for all."""
    named: object = exporter.spaces
    listed = isinstance(named, tuple) and all(isinstance(space, str) for space in named)
    require(listed, exporter, f"names its spaces {named!r}, not a tuple of names")
    row = _row(exporter.example_problems[0], "no_such_space", Config({}))
    try:
        exporter().export(replace(example_table(exporter), rows=(row,)))
    except TableError as error:
        both = "no_such_space" in str(error) and row.problem.name in str(error)
        require(both, exporter, f"its refusal does not name both space and problem: {error}")
        require("\n" not in str(error), exporter, "its refusal is longer than one line")
    else:
        broken = f"exported a row of a space that does not exist, and names its spaces: {exporter.spaces!r}"
        require(exporter.spaces == (), exporter, broken)


def is_pure_in_a_fresh_process(exporter: type[Exporter]) -> None:
    """Check that exporting loads no heavy package, leaves no file, and does not depend on the hash seed."""
    require_lightness(_digest, exporter)


CHECKS: tuple[Callable[[type[Exporter]], None], ...] = (
    writes_texts_to_plain_files,
    repeats_itself,
    tells_tables_apart,
    refuses_an_unknown_space,
    is_pure_in_a_fresh_process,
)
"""Checks that `check_exporter` runs, in order."""


def _export(exporter: type[Exporter], table: Table) -> dict[str, str]:
    return dict(exporter().export(table))


def _digest(exporter: type[Exporter]) -> str:
    written = _export(exporter, example_table(exporter))
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
        toolchain="torch 2.13.0, triton 3.7.0",
        protocol="graph-cold-l2",
    )
    baseline = choice if space == "aten" else None
    return Row(parse_workload(problem), (choice,), baseline, 0.0, (choice.config,), regret_bound=0.002)
