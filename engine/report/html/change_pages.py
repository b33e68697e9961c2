"""Pages of `verify` and `diff`: each row's time before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gemmtune.engine.campaign.verify import Check, Verified
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.report.html.drawing import COLORS, Picture, height_of, wrapped
from gemmtune.engine.report.html.page import Card, Page, Section, Sheet, render
from gemmtune.engine.report.layout import choice_text, count, microseconds, natural
from gemmtune.engine.report.tables import range_text
from gemmtune.engine.tables.diff import TableDiff

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DRAWN = 60  # most rows with an arrow, the largest shifts first


@dataclass(frozen=True, slots=True)
class _Change:
    """A row before and after."""

    name: str
    problem: Workload
    before: Choice | None
    after: Choice | None
    now_ns: float | None  # time after, which a check knows without a choice
    word: str
    kind: str  # win, tie or loss

    @property
    def shift(self) -> float | None:
        """Time after over the time before, minus 1; None where one is missing."""
        return None if self.before is None or self.now_ns is None else self.now_ns / self.before.time_ns - 1


def verify_html(found: Verified) -> str:
    """Return the page of a verified table: what each row's kernel takes now, and which rows hold."""
    changes = [_checked(check, check.problem.name) for check in found.rows]
    changes += [_checked(c, f"{range_text(its.row)} at {c.problem.size}") for its in found.ranges for c in its.checks]
    held = sum(check.holds for check in found.rows)
    cards = [Card(f"{held} of {len(found.rows)}", "rows hold")]
    if found.ranges:
        cards.append(Card(f"{sum(its.holds for its in found.ranges)} of {len(found.ranges)}", "ranges hold"))
    device = found.repaired.device
    title = f"gemmtune verify: {count(len(found.rows), 'row')}"
    text = (
        "Each arrow goes from the time that the table states to the time now. A row holds if its kernel works and is "
        "at most 2 % slower than the best contender now."
    )
    return _page(title, text, changes, device, cards)


def diff_html(found: TableDiff, before: Table, after: Table, names: tuple[str, str]) -> str:
    """Return the page of two tables' differences; `names` are those of their files."""
    changes = [_Change(row.problem.name, row.problem, None, *_first(row), "added", "win") for row in found.added]
    changes += [
        _Change(row.problem.name, row.problem, row.choices[0], None, None, "gone", "loss") for row in found.gone
    ]
    for word, of in (("winner", found.winner), ("terms", found.terms), ("time", found.time)):
        for each in of:
            old, (new, now_ns) = each.before.choices[0], _first(each.after)
            kind = "tie" if word == "terms" else "win" if now_ns <= old.time_ns else "loss"
            changes.append(_Change(each.after.problem.name, each.after.problem, old, new, now_ns, word, kind))
    number = len(found.ranges_added) + len(found.ranges_gone)
    cards = [Card(str(len(changes)), f"rows differ of {len(before.rows)} before and {len(after.rows)} after")]
    cards += [Card(str(number), "ranges added or gone")] if number else []
    text = "Each arrow goes from the time in the first table to the time in the second one."
    return _page(f"gemmtune diff: {names[0]} → {names[1]}", text, changes, after.device, cards)


def _page(title: str, text: str, changes: Sequence[_Change], device: Device, cards: Sequence[Card]) -> str:
    shifted = sorted((c for c in changes if c.shift is not None), key=lambda c: abs(c.shift or 0.0))[-_DRAWN:]
    pictures = []
    if shifted:
        names = [wrapped(each.name, 28) for each in shifted]

        def draw(figure: Figure) -> None:
            axes = figure.subplots()
            for place, each in enumerate(shifted):
                style = {"arrowstyle": "-|>", "color": COLORS[each.kind].light, "shrinkA": 0, "shrinkB": 0}
                axes.annotate("", (each.shift or 0.0, place), (0.0, place), arrowprops=style)
                axes.plot(each.shift or 0.0, place, "o", ms=3.5, color=COLORS[each.kind].light)
            axes.axvline(0.0, color=COLORS["muted"].light)
            axes.set_yticks(range(len(shifted)), names)
            axes.set_xlabel("time after against the time before")
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:+.1%}")
            axes.margins(x=0.1)
            axes.grid(axis="y", visible=False)

        pictures.append(Picture(f"Shift of {len(shifted)} rows", height_of(names), draw))
    changes = sorted(changes, key=lambda each: natural(each.name))
    rows = [
        [
            each.name,
            each.word,
            each.before.space if each.before else "-",
            _interval(each.before),
            each.after.space if each.after else "-",
            microseconds(each.now_ns),
            "-" if each.shift is None else f"{each.shift:+.1%}",
            "-" if each.after is None else choice_text(device, each.problem, each.after),
        ]
        for each in changes
    ]
    headers = ["row", "verdict", "ran", "µs before", "runs", "µs after", "shift", "config"]
    sheet = Sheet(headers, rows, ("row", "verdict", "ran", "runs", "config"), [c.kind for c in changes], True)
    sections = [Section("Shifts", text, pictures)] if pictures else []
    sections.append(
        Section("Rows", "Every row that was compared." if rows else "No row differs.", sheet=sheet if rows else None)
    )
    return render(Page(title, device.name, sections, cards))


def _checked(check: Check, name: str) -> _Change:
    word = "holds" if check.holds else "does not hold" if check.loss is not None else "does not work"
    kind = "loss" if not check.holds else "win" if (check.time_ns or 0) < check.choice.low_ns else "tie"
    return _Change(name, check.problem, check.choice, check.choice, check.time_ns, word, kind)


def _first(row: Row) -> tuple[Choice, float]:
    return row.choices[0], row.choices[0].time_ns


def _interval(choice: Choice | None) -> str:
    if choice is None:
        return "-"
    return f"{microseconds(choice.time_ns)} ({microseconds(choice.low_ns)}–{microseconds(choice.high_ns)})"
