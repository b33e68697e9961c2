"""Rows of a batch-invariant table: their check, and how one of them serves each m. Needs the standard library alone."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

_NO_END = 2**63 - 1


def require_templates(rows: Mapping[str, Sequence[Any]]) -> None:
    """Raise a ValueError that names a product whose row runs no Triton template; the export refuses several orders."""
    for key, its in rows.items():
        if others := {row.template for row in its if not row.template.startswith("triton::")}:
            raise ValueError(f"{key}: a batch-invariant table has no row of {', '.join(sorted(others))}")


def every_m(rows: Mapping[str, Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
    """Return rows by product in which each m has one, for graphs of a static and of a dynamic m alike.

    All rows of a product add in one order, so each may serve any m with equal bits, and ATen may not: its bits would be
    others. The first range begins at 0, the last one has no end. A kind of graph without ranges has those of the other
    kind, and without any, each row also serves the m below it.
    """
    found: dict[str, Sequence[Any]] = {}
    for key in dict.fromkeys((*rows, *map(other_kind, rows))):
        own, other = (rows.get(each, ()) for each in (key, other_kind(key)))
        lone, ranges = ([row for row in own if (row.first == row.last) is alone] for alone in (True, False))
        ranges = ranges or [row for row in other if row.first < row.last] or [*own, *other]
        spread, first = [], 0
        for row in sorted(ranges, key=lambda row: row.last):
            spread.append(row._replace(first=first))
            first = row.last + 1
        found[key] = [*lone, *spread[:-1], spread[-1]._replace(last=_NO_END)]
    for key in [each for each in found if ":static" in each]:
        at_one = next(row for row in found[key] if row.first <= 1 <= row.last)
        found.setdefault(of_one_row(key), [at_one._replace(first=1, last=1)])
    return found


def of_one_row(key: str) -> str:
    """Return a key without what a graph of m = 1 says otherwise: one row has no stride, and is a matrix, too."""
    dense = rf":lda=\d+|:batch_stride_a={key.split(':')[3].rpartition('x')[2]}\b"
    return re.sub(r"\b(vector|matrix|rows?)\d*\b", "x", re.sub(dense, "", key))


def other_kind(key: str) -> str:
    """Return the key of a product for graphs of a dynamic m in place of a static one, or the other way round."""
    one, other = (":static", ":dynamic") if ":static" in key else (":dynamic", ":static")
    return key.replace(one, other, 1)
