"""Rows whose fastest choice Inductor cannot run, with the fastest one that it can."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

from gemmtune.engine.consumers.inductor.loader.templates import Product, multiplied, template_of
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.table import Choice, Row, Table

_Key = TypeVar("_Key")
_time_ns = attrgetter("time_ns")


def runnable(table: Table, key: Callable[[Product], str]) -> tuple[Table, Mapping[str, list[str]]]:
    """Return the table with choices that Inductor can run, and the problems whose first choice it cannot, by space.

    A problem for which `key` raises a TableError is left out with that reason; so is a row or range without a template.
    ATen runs there. A batch-invariant table stays as it is, and one of which nothing would be left.
    """
    if table.batch_invariant:
        return table, {}
    found: dict[str, list[str]] = {}
    rows, ranges = [], []
    for row in table.rows:
        kept = _kept(row, table.margin)
        refused = _refusal(multiplied(row.problem), kept.choices[0], key)
        if refused or kept is not row:
            found.setdefault(row.choices[0].space, []).append(refused or row.problem.name)
        if not refused:
            rows.append(kept)
    for ranged in table.ranges:
        if _refusal(multiplied(ranged.problem), ranged.choice, key):
            found.setdefault(ranged.choice.space, []).append(f"{ranged.problem.name} from {ranged.first} on")
        else:
            ranges.append(ranged)
    return (replace(table, rows=tuple(rows), ranges=tuple(ranges)), found) if rows or ranges else (table, {})


def _refusal(product: Product, choice: Choice, key: Callable[[Product], str]) -> str:
    """Return why Inductor has no row for a choice; empty if it has."""
    try:
        key(product), template_of(product, choice)
    except TableError as error:
        return str(error)
    return ""


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


def unless_beaten(baseline: _Key | None, of: Iterable[_Key], score: Callable[[_Key], float], margin: float) -> _Key:
    """Return the baseline, or what has the least score if there is no baseline or the score beats it by the margin."""
    best = min(of, key=score)
    return best if baseline is None or score(baseline) >= score(best) * (1 + margin) else baseline


def runs(product: Product, choice: Choice) -> bool:
    """Return whether Inductor has a template for a choice, or the export contains its kernel."""
    return not _refusal(product, choice, str)
