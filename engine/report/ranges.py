"""Ranges of m in reports: the rows of a table, and their losses."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import RangeRow, Table
from gemmtune.engine.report.layout import Grid, choice_text, count, json_fields
from gemmtune.engine.tables.ranges import RangesReport, SizeLoss

__all__ = ["losses_json", "losses_text", "range_row_json", "range_rows", "range_text"]


def range_rows(table: Table) -> Grid:
    """Return a line per range: the m it serves, what runs there, and its losses at measured m."""
    rows = table.ranges
    columns = {
        "GEMM": [_any_m(row.problem) for row in rows],
        "m": [f"{row.first}–{row.last}" for row in rows],
        "run": [row.choice.space for row in rows],
        "loss at tuned m": [_losses(row.tuned) for row in rows],
        "probed m": [_losses(row.probed) for row in rows],
        "held-out m": [_losses(row.held_out) for row in rows],
        "config": [choice_text(table.device, row.problem, row.choice) for row in rows],
    }
    return Grid(columns, tuple(columns))


def range_row_json(row: RangeRow) -> dict[str, object]:
    """Return one range for programs; losses are per m."""
    losses = {name: dict(getattr(row, name)) for name in ("tuned", "held_out", "probed")}
    return json_fields(row, "problem", "first", "last") | json_fields(row.choice, "space", "config") | losses


def range_text(row: RangeRow) -> str:
    """Return the GEMM and the m of a range: `mx4096x4096:bf16:nt, m 17–32`."""
    return f"{_any_m(row.problem)}, m {row.first}–{row.last}"


def losses_text(report: RangesReport, *, buckets: bool) -> str:
    """Return a line each on the tuned, the probed and the held-out sizes.

    Args:
        report: losses of the ranges.
        buckets: whether the ranges have powers of two as edges.
    """
    if not report.ranges:
        return "ranges of m: none, for no GEMM was tuned at two m or more"
    way, other = ("powers of two", "measured") if buckets else ("measured", "powers of two")
    lines = [f"ranges of m ({way} edges): {count(report.ranges, 'range')}; {_line(report.tuned, 'tuned m')}"]
    if report.probed:
        lines.append(f"  {_line(report.probed, 'probed m')}, between tuned ones")
    if report.held_out:
        lines.append(f"  {_line(report.held_out, 'held-out m')}; with {other} edges {_line(report.otherwise, '')}")
    return "\n".join(lines)


def losses_json(report: RangesReport) -> dict[str, object]:
    """Return the losses at each size for programs."""
    return {**json_fields(report, "ranges", "tuned", "probed", "held_out"), "held_out_otherwise": report.otherwise}


def _any_m(problem: Problem) -> str:
    """Return the problem's name with m in place of its m."""
    sizes, _, rest = problem.name.partition(":")
    *batch, _, n, k = sizes.split("x")
    return f"{'x'.join((*batch, 'm', n, k))}:{rest}"


def _losses(losses: Sequence[tuple[int, float]]) -> str:
    return ", ".join(f"{m}: {loss:.1%}" for m, loss in losses) or "-"


def _line(losses: Sequence[SizeLoss], sizes: str) -> str:
    known = [each.loss for each in losses if each.loss is not None]
    outside = sum(not each.in_range for each in losses)
    notes = [f"{outside} outside of every range"] * (outside > 0)
    notes += [f"{len(losses) - len(known)} not measured"] * (len(known) < len(losses))
    where = f" at {len(losses)} {sizes}" if sizes else ""
    if not known:
        return f"loss unknown{where}"
    noted = f" ({', '.join(notes)})" if notes else ""
    return f"loss {max(known):.2%} at worst, {fmean(known):.2%} in the mean{where}{noted}"
