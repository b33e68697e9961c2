"""Rows that torch cannot tell apart: a compiled graph serves all values of a mask's tensors, and every routing.

| of several | what stays |
|---|---|
| rows | one, with the choice that was measured in all of them and loses least by their weights |
| ranges | those of the series with the largest weight |
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gemmtune.engine.consumers.inductor.next_choice import unless_beaten
from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.engine.records.grouped.routing import UNIFORM
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.records.workload import Workload


def one_per_key(table: Table) -> tuple[Table, Sequence[str]]:
    """Return the table with one row or series of ranges per problem as torch sees it, and the names of those joined."""
    groups: defaultdict[str, list[Row]] = defaultdict(list)
    weights: defaultdict[Workload, float] = defaultdict(float)
    for row in table.rows:
        weights[row.problem.series] += row.problem.weight
        if (seen := _seen(row.problem)) and not getattr(row.problem, "dynamic", ""):
            groups[seen].append(row)
    several = [rows for rows in groups.values() if len(rows) > 1]
    joined = {rows[0].problem: _joined(rows, table.margin) for rows in several}
    gone = {row.problem for rows in several for row in rows[1:]}
    series = [*dict.fromkeys(ranged.problem.series for ranged in table.ranges if _seen(ranged.problem))][::-1]
    kept = {_seen(each): each for each in sorted(series, key=lambda each: weights[each])}  # heaviest last
    rest = {*series} - {*kept.values()}
    rows = tuple(joined.get(row.problem, row) for row in table.rows if row.problem not in gone)
    ranges = tuple(ranged for ranged in table.ranges if ranged.problem.series not in rest)
    names = [row.problem.name for rows in several for row in rows] + sorted(each.series_name for each in rest)
    return replace(table, rows=rows, ranges=ranges), names


def _seen(problem: Workload) -> str:
    """Return the name of a problem without what torch does not see; empty for one of which it sees all."""
    if isinstance(problem, Grouped):
        return replace(problem, routing=UNIFORM).name
    return problem.kernel_name if isinstance(problem, Flex) else ""


def _joined(rows: Sequence[Row], margin: float) -> Row:
    """Return the heaviest of several rows with a choice for all: the baseline, unless another beats it by a margin."""
    measured = [_by_config(row) for row in rows]
    shared = [key for key in measured[0] if all(key in its for its in measured)]
    fastest = [min(choice.time_ns for choice in its.values()) for its in measured]

    def score(key: tuple[str, str]) -> float:
        each = zip(rows, measured, fastest, strict=True)
        return sum(row.problem.weight * its[key].time_ns / best for row, its, best in each)

    heaviest = max(rows, key=lambda row: row.problem.weight)
    if not shared:
        return heaviest
    base = next((each for each in shared if each[0] == heaviest.problem.baseline_space), None)
    key = unless_beaten(base, shared, score, margin)
    first = _by_config(heaviest)[key]
    loss = max(0.0, *(its[key].time_ns / best - 1 for its, best in zip(measured, fastest, strict=True)))
    return replace(heaviest, choices=(first, *(x for x in heaviest.choices if x is not first)), loss=loss).with_lead()


def _by_config(row: Row) -> Mapping[tuple[str, str], Choice]:
    """Return the choices of a row and its baseline by space and config."""
    choices = [*row.choices, *([row.baseline] if row.baseline else [])]
    return {(choice.space, choice.config.json): choice for choice in reversed(choices)}
