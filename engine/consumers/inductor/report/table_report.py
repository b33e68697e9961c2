"""Reports of exported tables: the loader's, and the one that stock Inductor reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gemmtune.engine.consumers.inductor.written import parse_written_table
from gemmtune.engine.report.files import read_exported
from gemmtune.engine.report.layout import Grid, Report, count, microseconds, params_text, span


def inductor_report(path: Path, record: Mapping[str, Any]) -> Report:
    """Return the report of an exported table; raises TableError if the table is damaged."""
    table = read_exported(path, parse_written_table)
    entries = [(key, entry) for key, rows in record["rows"].items() for entry in rows]
    columns = {
        "product": [key for key, _ in entries],
        "m": [span(entry["first"], entry["last"]) for _, entry in entries],
        "µs": [microseconds(entry["facts"].get("time_ns")) for _, entry in entries],
        "template": [entry["template"] for _, entry in entries],
        "config": [params_text(entry["kwargs"]) for _, entry in entries],
    }
    packages = ", ".join(f"{name} {' or '.join(versions)}" for name, versions in table.made_with.items())
    title = f"{table.device}: {count(len(entries), 'row')} for torch.compile, objective {record['objective']}"
    head = f"{title}\nmade with {packages or 'unknown versions'}; written by gemmtune {record['gemmtune']}"
    return Report(record, [head, Grid(columns, ("product", "m", "template", "config"))])


def lookup_report(_path: Path, record: Mapping[str, Any]) -> Report:
    """Return the report of a `lookup_table.json`."""
    entries = [(key, dict(entry)) for key, rows in record.items() for entry in rows]
    columns = {
        "template": [str(entry.pop("template_id", "-")) for _, entry in entries],
        "product": [key for key, _ in entries],
        "config": [params_text(entry) for _, entry in entries],
    }
    head = f"{count(len(entries), 'row')} for stock Inductor (torch._inductor.config.lookup_table)"
    return Report(record, [head, Grid(columns, tuple(columns))])
