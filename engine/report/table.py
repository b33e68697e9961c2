"""Report of `gemmtune show` on a table."""

from __future__ import annotations

from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Table
from gemmtune.engine.records.task import BASELINE_SPACE
from gemmtune.engine.report.layout import Grid, Report, bound, choice_text, count, json_fields, microseconds
from gemmtune.engine.report.ranges import range_row_json, range_rows

__all__ = ["table_report"]


def table_report(table: Table) -> Report:
    """Report each row of a table: what production should run, and how sure that is."""
    rows = table.rows
    first = [row.choices[0] for row in rows]
    columns = {
        "problem": [row.problem.name for row in rows],
        "run": [choice.space for choice in first],
        "µs": [microseconds(choice.time_ns) for choice in first],
        "95 % interval": [_interval(choice) for choice in first],
        f"{BASELINE_SPACE} µs": [microseconds(row.baseline.time_ns if row.baseline else None) for row in rows],
        "margin": [f"{row.margin:+.1%}" for row in rows],
        "ties": [str(len(row.tie_band)) for row in rows],
    }
    if any(row.regret_bound is not None for row in rows):
        columns["regret"] = [bound(row.regret_bound) for row in rows]
    if any(row.loss for row in rows):
        columns["loss"] = [f"{row.loss:.2%}" for row in rows]
    title = f"{table.device.name}: {count(len(rows), 'row')}, objective {table.objective}"
    evidence = [choice.evidence.value for choice in first]
    if len(set(evidence)) > 1:
        columns["evidence"] = evidence
    elif evidence:
        title += f", {evidence[0]}"
    columns["config"] = [choice_text(table.device, row.problem, row.choices[0]) for row in rows]
    interval = ("time_ns", "low_ns", "high_ns", "samples")
    record = {
        "device": table.device.sku,
        "objective": table.objective,
        "rows": [
            {
                "problem": row.problem.name,
                "margin": row.margin,
                "ties": len(row.tie_band),
                "regret_bound": row.regret_bound,
                "loss": row.loss,
                "choices": [json_fields(c, "space", "config", *interval, "evidence") for c in row.choices],
                "baseline_ns": row.baseline.time_ns if row.baseline else None,
            }
            for row in rows
        ],
        "ranges": [range_row_json(row) for row in table.ranges],
    }
    ranges = [range_rows(table)] if table.ranges else []
    return Report(record, [title, Grid(columns, ("problem", "run", "evidence", "config")), *ranges])


def _interval(choice: Choice) -> str:
    """Return the 95 % interval in µs; a dash for an estimate, whose error is unknown."""
    if choice.evidence is Evidence.ESTIMATED:
        return "-"
    return f"{microseconds(choice.low_ns)}–{microseconds(choice.high_ns)}"
