"""Rows whose fastest choice Inductor cannot run, with the fastest one that it can."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from gemmtune.engine.consumers.inductor.loader.templates import Product, multiplied, template_of
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.table import Choice, Row, Table

_Key = TypeVar("_Key")


def runnable(table: Table) -> tuple[Table, Mapping[str, list[str]]]:
    """Return the table with choices that Inductor can run, and the problems whose first choice it cannot, by space.

    A row of which Inductor runs no choice stays as it is, as does a batch-invariant table. A range without a template
    is left out: ATen runs there.
    """
    if table.batch_invariant:
        return table, {}
    found: dict[str, list[str]] = {}
    rows = []
    for row in table.rows:
        kept = _kept(row, table.margin)
        if kept is not row:
            found.setdefault(row.choices[0].space, []).append(row.problem.name)
        rows.append(kept)
    ranges = []
    for ranged in table.ranges:
        if runs(multiplied(ranged.problem), ranged.choice):
            ranges.append(ranged)
        else:
            found.setdefault(ranged.choice.space, []).append(f"{ranged.problem.name} from {ranged.first} on")
    return replace(table, rows=tuple(rows), ranges=tuple(ranges)), found


def _kept(row: Row, margin: float) -> Row:
    """Return the row, or one that begins with its fastest choice that Inductor runs; see `Table.margin`."""
    product, first = multiplied(row.problem), row.choices[0]
    if runs(product, first):
        return row
    choices = sorted((each for each in row.choices if runs(product, each)), key=_time_ns)
    if not choices:
        return row
    base = next((each for each in choices if each.space == product.baseline_space), None)
    served = unless_beaten(base, choices, _time_ns, margin)
    choices.sort(key=lambda each: each is not served)  # it comes first, the others stay by their times
    loss = max(0.0, (1 + row.loss) * choices[0].time_ns / first.time_ns - 1)
    return replace(row, choices=tuple(choices), loss=loss).with_lead()


def _time_ns(choice: Choice) -> float:
    return choice.time_ns


def unless_beaten(baseline: _Key | None, of: Iterable[_Key], score: Callable[[_Key], float], margin: float) -> _Key:
    """Return the baseline, or what has the least score if there is no baseline or the score beats it by the margin."""
    best = min(of, key=score)
    return best if baseline is None or score(baseline) >= score(best) * (1 + margin) else baseline


def runs(product: Product, choice: Choice) -> bool:
    """Return whether Inductor has a template for a choice, or the export contains its kernel."""
    try:
        return bool(template_of(product, choice))
    except TableError:
        return False
