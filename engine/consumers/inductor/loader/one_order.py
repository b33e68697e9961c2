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
    kind, and without any, each row also serves the m below it. Rows of a strided A serve every other A, too.
    """
    found: dict[str, Sequence[Any]] = {}
    rows = {unstrided(key, 0): its for key, its in rows.items()} | dict(rows)
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
        found.setdefault(unstrided(key, 1), [at_one._replace(first=1, last=1)])
    return found


def unstrided(key: str, m: int) -> str:
    """Return a key without strides of A, which change no bit; for m = 1 with one word for vector, row and matrix."""
    dense = re.sub(r":(lda|batch_stride_a)=\d+", "", key)
    return re.sub(r"\b(vector|matrix|rows?)\d*\b", "x", dense) if m == 1 else dense


def other_kind(key: str) -> str:
    """Return the key of a product for graphs of a dynamic m in place of a static one, or the other way round."""
    one, other = (":static", ":dynamic") if ":static" in key else (":dynamic", ":static")
    return key.replace(one, other, 1)
