"""Lines on the rows of an earlier table: which a campaign kept, replaced and dropped."""

from collections import defaultdict
from collections.abc import Sequence, Set

from gemmtune.engine.records.table import RangeRow, Row
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.report.layout import count, json_fields, microseconds
from gemmtune.engine.report.tables import first_choice, range_text
from gemmtune.engine.tables.earlier import EarlierRow, Fate

__all__ = ["earlier_json", "earlier_notes"]

_MOST_NAMED = 5  # rows that stay, since nothing was measured in their place


def earlier_notes(found: Sequence[EarlierRow], searched: Set[Workload]) -> list[str]:
    """Return what became of the rows: those without a new row by their reason, all others on lines of their own."""
    groups: defaultdict[tuple[Fate, str, str], list[EarlierRow]] = defaultdict(list)
    for each in found:
        noun = "earlier range" if isinstance(each.before, RangeRow) else "earlier row"
        of = f" of {each.reason}" if each.now is None else ""
        if of and each.fate is Fate.KEPT and each.before.problem in searched:
            of = " of problems without a measurement now"
        groups[each.fate, noun, of].append(each)
    return [_note(fate, f"{count(len(rows), noun)}{of}", rows) for (fate, noun, of), rows in groups.items()]


def earlier_json(found: Sequence[EarlierRow]) -> list[dict[str, object]]:
    """Return every row with its fate for programs."""
    return [
        {
            "problem": each.before.problem.name,
            "fate": each.fate,
            "reason": each.reason,
            "before": _choice_json(each.before),
            "now": each.now and _choice_json(each.now),
        }
        for each in found
    ]


def _note(fate: Fate, what: str, rows: Sequence[EarlierRow]) -> str:
    kept = fate is Fate.KEPT
    if rows[0].now is None:
        names = [_name(each.before) for each in rows]
        if kept and len(names) > _MOST_NAMED:
            names[_MOST_NAMED:] = ["..."]
        return f"{fate} {what} ({', '.join(names)}){'; --replace drops them' if kept else ''}"
    lines = [_change(each) for each in rows]
    head = f"{fate} {what}{', which --replace drops' if kept else ''}:"
    return f"{head} {lines[0]}" if len(lines) == 1 else "\n  ".join([head, *lines])


def _change(each: EarlierRow) -> str:
    """Return `16x4096x4096:bf16:nt triton_mm 17.7 -> aten 19.3 µs (torch 2.11.0, now 2.13.0)`."""
    rows = [row for row in (each.before, each.now) if row is not None]
    before, now = (f"{choice.space} {microseconds(choice.time_ns)}" for choice in map(first_choice, rows))
    link = "stays, not" if each.fate is Fate.KEPT else "->"
    return f"{_name(each.before)} {before} {link} {now} µs ({each.reason})"


def _name(row: Row | RangeRow) -> str:
    return range_text(row) if isinstance(row, RangeRow) else row.problem.name


def _choice_json(row: Row | RangeRow) -> dict[str, object]:
    return json_fields(first_choice(row), "space", "config", "time_ns")
