"""What the ranges of m of a table lose."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import RangeRow, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import config_text, count, table_text
from gemmtune.engine.tables.ranges_report import RangesReport, SizeLoss

__all__ = ["of_any_m", "range_row_record", "range_rows_text", "ranges_record", "ranges_text"]


def range_rows_text(table: Table, width: int | None = None) -> str:
    """One line a range of a table: the m it serves, what runs there, and what that loses where it was measured."""
    columns = {
        "GEMM": [of_any_m(row.problem) for row in table.ranges],
        "m": [f"{row.first}–{row.last}" for row in table.ranges],
        "run": [row.choice.space for row in table.ranges],
        "loss at tuned m": [_losses(row.tuned) for row in table.ranges],
        "probed m": [_losses(row.probed) for row in table.ranges],
        "held-out m": [_losses(row.held_out) for row in table.ranges],
        "config": [
            config_text(Task(row.problem, table.device, row.choice.space), row.choice.config) for row in table.ranges
        ],
    }
    lines = list(zip(*columns.values(), strict=True))
    left = ("GEMM", "m", "run", "loss at tuned m", "probed m", "held-out m", "config")
    return table_text(list(columns), lines, left, width)


def range_row_record(row: RangeRow) -> dict[str, object]:
    """The same of one range, for programs."""
    return {
        "problem": row.problem.name,
        "first": row.first,
        "last": row.last,
        "space": row.choice.space,
        "config": dict(row.choice.config),
        "tuned": {str(m): loss for m, loss in row.tuned},
        "held_out": {str(m): loss for m, loss in row.held_out},
        "probed": {str(m): loss for m, loss in row.probed},
    }


def of_any_m(problem: Problem) -> str:
    """The problem's name with m for its m."""
    sizes, _, rest = problem.name.partition(":")
    *batch, _, n, k = sizes.split("x")
    return f"{'x'.join((*batch, 'm', n, k))}:{rest}"


def _losses(losses: Sequence[tuple[int, float]]) -> str:
    return ", ".join(f"{m}: {loss:.1%}" for m, loss in losses) or "-"


def ranges_text(report: RangesReport, *, buckets: bool) -> str:
    """A line on the sizes that were tuned, one on those that were probed, and one on those held out, each way."""
    if not report.ranges:
        return "ranges of m: none, for no GEMM was tuned at two m or more"
    way, other = ("powers of two", "measured") if buckets else ("measured", "powers of two")
    lines = [f"ranges of m ({way} edges): {count(report.ranges, 'range')}; {_line(report.tuned, 'tuned m')}"]
    if report.probed:
        lines.append(f"  {_line(report.probed, 'probed m')}, between tuned ones")
    if report.held_out:
        lines.append(f"  {_line(report.held_out, 'held-out m')}; with {other} edges {_line(report.otherwise, '')}")
    return "\n".join(lines)


def ranges_record(report: RangesReport) -> dict[str, object]:
    """The same for programs."""
    return {
        "ranges": report.ranges,
        "tuned": [_record(loss) for loss in report.tuned],
        "probed": [_record(loss) for loss in report.probed],
        "held_out": [_record(loss) for loss in report.held_out],
        "held_out_otherwise": [_record(loss) for loss in report.otherwise],
    }


def _line(losses: Sequence[SizeLoss], of: str) -> str:
    known = [each.loss for each in losses if each.loss is not None]
    outside = sum(not each.in_range for each in losses)
    notes = [f"{outside} outside of every range"] * (outside > 0)
    notes += [f"{len(losses) - len(known)} not measured"] * (len(known) < len(losses))
    where = f" at {len(losses)} {of}" if of else ""
    if not known:
        return f"loss unknown{where}"
    said = f" ({', '.join(notes)})" if notes else ""
    return f"loss {max(known):.2%} at worst, {fmean(known):.2%} in the mean{where}{said}"


def _record(loss: SizeLoss) -> dict[str, object]:
    return {"problem": loss.problem.name, "space": loss.space, "loss": loss.loss, "in_range": loss.in_range}
