"""Report of a table exported for CuTe dispatchers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemmtune.engine.consumers.cute.table_loader import parse_cute_table
from gemmtune.engine.report.files import read_exported
from gemmtune.engine.report.layout import Grid, Report, count, microseconds, params_text


def cute_report(path: Path, _record: Mapping[str, Any]) -> Report:
    """Return the report of an exported table; raises TableError if the table is damaged."""
    record = read_exported(path, parse_cute_table)
    entries = [(space, row) for space, rows in record["rows"].items() for row in rows.values()]
    columns = {
        "problem": [row["problem"] for _, row in entries],
        "space": [space for space, _ in entries],
        "µs": [microseconds(row["time_ns"]) for _, row in entries],
        "loss": ["-" if row["loss"] is None else f"{row['loss']:.2%}" for _, row in entries],
        "winner": [row["winner"] for _, row in entries],
        "config": [params_text(row["config"]) for _, row in entries],
    }
    packages = {name: version for _, row in entries for name, version in row["packages"].items()}
    title = f"{record['device']['name']}: {count(len(entries), 'row')} for CuTe, objective {record['objective']}"
    made_with = ", ".join(f"{name} {version}" for name, version in sorted(packages.items()))
    head = f"{title}\nmade with {made_with or 'unknown versions'}; written by gemmtune {record['gemmtune']}"
    return Report(record, [head, Grid(columns, ("problem", "space", "winner", "config"))])
