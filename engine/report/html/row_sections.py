"""Sections on what the rows are worth: lead, finals, every row, and Markdown to paste."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import Finalist
from gemmtune.engine.records.workload import Workload, baseline_name, baseline_words
from gemmtune.engine.report.campaign_record import CampaignRecord, lead, row_id
from gemmtune.engine.report.html.code_section import code_links
from gemmtune.engine.report.html.drawing import COLORS, PANELS, Picture, dots, grid, height_of, shortened
from gemmtune.engine.report.html.page import Cell, Section, Sheet
from gemmtune.engine.report.layout import choice_text, config_text, lead_text, microseconds, readable, readable_unit
from gemmtune.engine.report.why import kind_meanings, why
from gemmtune.engine.tables.roofline import speed_columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKUP = re.compile(r"[\\`*_<>\[\]|]")  # what Markdown does not show as it stands
_NOT_IN_TIPS = ("problem", "code", "95 % interval", "ties", "regret ≤", "weight")  # a tip has no room for them
_NAMED = 50  # most problems that a picture names; more become a curve


def leads(record: CampaignRecord) -> Section:
    """Draw the lead of each problem's fastest kernel over the baseline, with its interval."""
    found = [
        (row, of, why(row, record.table.margin), row_id(place))
        for place, row in enumerate(record.table.rows)
        if (of := lead(row)) is not None
    ]
    words = baseline_words(row.problem for row in record.table.rows)
    title = f"Lead over {words}"
    if not found:
        return Section(title, "No row has both a kernel and a measured baseline.")
    found.sort(key=lambda each: each[1][0])
    named = len(found) <= _NAMED
    names = [shortened(row.problem.name, 28) for row, *_ in found]
    baseline = baseline_name(row.problem for row, *_ in found)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for kind, meaning in kind_meanings(words).items():
            places = [i for i, (*_, reason, _) in enumerate(found) if reason.kind == kind]
            if not places:
                continue
            at = [found[i][1][0] for i in places]
            bars = [[of - found[i][1][1] for of, i in zip(at, places, strict=True)]]
            bars.append([found[i][1][2] - of for of, i in zip(at, places, strict=True)])
            bar = partial(axes.errorbar, color=COLORS[kind].light, fmt="none")
            bar(at, places, xerr=bars) if named else bar(places, at, yerr=bars)
            xs, ys = (at, places) if named else (places, at)
            dots(axes, xs, ys, [found[i][-1] for i in places], kind, 36 if named else 9, meaning)
        for value, dashes in ((0.0, "-"), (record.table.margin, ":")):
            (axes.axvline if named else axes.axhline)(value, color=COLORS["muted"].light, linestyle=dashes)
        label = f"lead over {baseline}"
        (axes.xaxis if named else axes.yaxis).set_major_formatter(
            lambda value, _: f"{round(value * 100, 6):+g}%".replace("+0%", "0%")
        )
        if named:
            axes.set_yticks(range(len(found)), names)
            axes.set_xlabel(label)
            axes.set_ylim(-0.7, len(found) - 0.3)
            axes.locator_params(axis="x", nbins=6)
            axes.grid(axis="y", visible=False)
        else:
            axes.set_xlabel(f"{len(found)} problems, sorted by their lead")
            axes.set_ylabel(label)
        figure.legend(loc="outside upper left", ncols=2)

    picture = Picture(f"Lead over {baseline} for {len(found)} problems", height_of(names) if named else 3.6, draw)
    rows = [
        [
            row.problem.name,
            lead_text(of[0]),
            f"{lead_text(of[1])} to {lead_text(of[2])}",
            reason.value,
            reason.meaning(words),
        ]
        for row, of, reason, _ in reversed(found)
    ]
    text = (
        f"The lead of the kernel that ships over {words}, or of the fastest one found where {words} ships, with its "
        "95 % interval. A kernel ships where it leads beyond the noise and by the margin (dotted) or more: "
        f"{record.table.margin * 100:g} %."
    )
    headers = ["problem", "lead", "95 % interval", "why", "meaning"]
    sheet = Sheet(headers, rows, ("problem", "why", "meaning"), [reason.kind for *_, reason, _ in reversed(found)])
    return Section(title, text, [picture], sheet)


def finals(record: CampaignRecord) -> Section:
    """Draw the intervals of each final's configs against its leader."""
    title = "Finals"
    held = [(p, p.final) for p in record.problems if p.final is not None]
    if not held:
        return Section(title, "No final was held: replays and estimates rank by the numbers they have.")
    shown = held[:PANELS]
    most = max(len(final.finalists) for _, final in shown)
    longest = max(len(each.task.space) for _, final in shown for each in final.finalists)
    height = 0.95 + (0.75 + 0.17 * most) * ceil(len(shown) / 2)

    def draw(figure: Figure) -> None:
        panels = grid(figure, len(shown), 2, height, longest)
        for number, (axes, (p, final)) in enumerate(zip(panels, shown, strict=True)):
            for kind in ("win", "tie", "series0"):
                places = [i for i, each in enumerate(final.finalists) if _kind(i, each) == kind]
                bounds = [final.finalists[i].behind for i in places]
                if places:
                    middles = [(low + high) / 2 for low, high in bounds]
                    widths = [(high - low) / 2 for low, high in bounds]
                    axes.errorbar(middles, places, xerr=widths, fmt="none", color=COLORS[kind].light)
                    dots(axes, middles, places, [_final_id(number, i) for i in places], kind, 20)
            axes.set_yticks(range(len(final.finalists)), [each.task.space for each in final.finalists], fontsize=8)
            axes.invert_yaxis()
            axes.set_title(shortened(p.problem.name, 34), fontsize=8)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:.1%}")
        figure.supxlabel("slower than the leader", fontsize=9)

    picture = Picture(f"Intervals of {len(shown)} finals", height, draw, solved=False)
    rows: list[list[Cell]] = [
        [
            p.problem.name,
            str(place + 1),
            each.task.space,
            config_text(each.task, each.config),
            microseconds(each.estimate.time_ns),
            f"{each.behind[0]:+.2%} to {each.behind[1]:+.2%}",
            "tie" if each.behind[0] <= 0 else "behind",
        ]
        for p, final in held
        for place, each in enumerate(final.finalists)
    ]
    ids = [
        _final_id(number, place) for number, (_, final) in enumerate(held) for place, _ in enumerate(final.finalists)
    ]
    headers = ["problem", "place", "space", "config", "µs", "slower than the leader, 95 %", "verdict"]
    words = baseline_words(p.problem for p, _ in held)
    text = (
        f"The fastest configs of a problem and {words}, timed in alternating rounds on one GPU. An interval that "
        f"touches zero ties with the leader. Green is a kernel that leads, grey {words}, blue any other kernel."
    )
    sheet = Sheet(headers, rows, ("problem", "space", "config", "verdict"), ids=ids, tip=headers[1:])
    return Section(title, text, [picture], sheet)


def _final_id(number: int, place: int) -> str:
    return f"final-{number + 1}-{place + 1}"


def _kind(place: int, finalist: Finalist) -> str:
    """Return the colour of a finalist: that of the baseline says that it gains nothing."""
    if finalist.task.is_baseline:
        return "tie"
    return "win" if place == 0 else "series0"


def all_rows(record: CampaignRecord) -> Section:
    """List every row of the table, without columns that say nothing of any row."""
    table, unit = record.table, record.objective.unit
    rows, its = table.rows, readable_unit(unit)
    first, reasons = [row.choices[0] for row in rows], [why(row, table.margin) for row in rows]
    times = [(c.low_ns, c.high_ns) for c in first]
    columns: dict[str, Sequence[Cell]] = {
        "problem": [row.problem.name for row in rows],
        "ships": [choice.space for choice in first],
        its: [readable(choice.time_ns, unit) for choice in first],
        "95 % interval": [
            "-" if low == high else f"{readable(low, unit)}–{readable(high, unit)}" for low, high in times
        ],
        **speed_columns(table),
        f"{baseline_name(row.problem for row in rows)} {its}": [
            readable(row.baseline.time_ns if row.baseline else None, unit) for row in rows
        ],
        "lead": [lead_text(row.lead) for row in rows],
        "why": [reason.value for reason in reasons],
        "config": [choice_text(table.device, *each) for each in zip((row.problem for row in rows), first, strict=True)],
        "code": code_links(record),
        **_resources(record),
        "ties": [str(len(row.tie_band)) for row in rows],
        "regret ≤": ["-" if row.regret_bound is None else f"{row.regret_bound:.2%}" for row in rows],
        "weight": [f"{row.problem.weight:g}" for row in rows],
    }
    silent = {"weight": {"1"}}
    shown = {name: cells for name, cells in columns.items() if set(cells) - silent.get(name, {"-"})}
    meanings = {
        "% of peak": "peak is the bandwidth or the rate of the type, whichever bounds the row",
        "lead": f"the lead is over {baseline_words(row.problem for row in rows)}",
        "spills B": "spills are bytes of local memory per thread",
        "ties": "ties are configs that the measurements do not tell from the fastest",
        "regret ≤": "regret is the most that a finalist could be faster",
    }
    text = f"Every row that ships; {', '.join(said for name, said in meanings.items() if name in shown)}."
    left, kinds = ("problem", "ships", "why", "config", "code"), [reason.kind for reason in reasons]
    ids, tip = [row_id(place) for place in range(len(rows))], [name for name in shown if name not in _NOT_IN_TIPS]
    sheet = Sheet(list(shown), list(zip(*shown.values(), strict=True)), left, kinds, True, ids, tip)
    return Section("All rows", text, sheet=sheet)


def _resources(record: CampaignRecord) -> dict[str, list[str]]:
    """Return the columns of what each row's kernel needs of an SM; a dash where nobody read its binary."""
    read: dict[tuple[Workload, str, Config], Resources] = {
        (p.problem, e.space, e.config): e.resources for p in record.problems for e in p.evaluations if e.resources
    }
    ships = [(row.problem, row.choices[0].space, row.choices[0].config) for row in record.table.rows]
    needs = [read.get(key) for key in ships]
    return {
        "registers": [f"{each.registers}" if each else "-" for each in needs],
        "shared KiB": [f"{each.shared_bytes / 1024:.1f}" if each else "-" for each in needs],
        "spills B": [f"{each.spill_bytes}" if each else "-" for each in needs],
    }


def markdown(record: CampaignRecord, headline: Iterable[str]) -> Section:
    """Return a Markdown block for a pull request: the headline, and the rows that ship a kernel."""
    lines = ["- " + _MARKUP.sub(r"\\\g<0>", each) for each in headline]
    led = [row for row in record.table.rows if row.lead is not None and why(row, record.table.margin).kind == "win"]
    won = sorted(led, key=lambda row: row.lead or 0.0, reverse=True)
    if won:
        its = readable_unit(record.objective.unit)
        baseline = baseline_name(row.problem for row in won)
        lines += ["", f"| problem | {its} | {baseline} {its} | lead |", "|---|---|---|---|"]
        for row in won[:30]:
            base = readable(row.baseline.time_ns if row.baseline else None, record.objective.unit)
            cells = row.problem.name, readable(row.choices[0].time_ns, record.objective.unit), base
            lines.append(f"| `{cells[0]}` | {cells[1]} | {cells[2]} | {lead_text(row.lead)} |")
        if len(won) > 30:
            lines.append(f"| {len(won) - 30} more | | | |")
    return Section("For a pull request", "Markdown to paste.", code="\n".join(lines))
