"""Section on ranges of sizes: what runs where, and what was never measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import cycle, groupby, pairwise
from typing import TYPE_CHECKING

from gemmtune.engine.records.table import RangeRow, Row
from gemmtune.engine.report.campaign_record import CampaignRecord
from gemmtune.engine.report.html.drawing import COLORS, PANELS, SERIES, Picture, plain_ticks
from gemmtune.engine.report.html.page import Cell, Section, Sheet
from gemmtune.engine.report.layout import choice_text, span
from gemmtune.engine.report.tables import size_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def m_ranges(record: CampaignRecord) -> Section | None:
    """Draw winner and baseline over the size with the ranges that serve it; None for a table without ranges."""
    if not record.table.ranges:
        return None
    pictures, sheet_rows = [], list[Sequence[Cell]]()
    families = [(key, list(of)) for key, of in groupby(record.table.ranges, key=lambda r: r.problem.series)]
    for series, ranges in families[:PANELS]:
        rows = (row for row in record.table.rows if row.problem.series == series)
        tuned = sorted(rows, key=lambda row: row.problem.size)
        label = f"Ranges of {ranges[0].problem.range_size} of {ranges[0].problem.series_name}"
        pictures.append(Picture(label, 3.2, partial(_draw, ranges=ranges, tuned=tuned)))
    for _, ranges in families:
        for each in ranges:
            measured = sorted(m for m, _ in (*each.tuned, *each.probed, *each.held_out))
            sheet_rows.append(
                [
                    each.problem.series_name,
                    (span(each.first, each.last), float(each.first)),
                    each.choice.space,
                    f"{each.worst_loss:.2%}",
                    ", ".join(map(str, measured)),
                    ", ".join(span(a, b) for a, b in _holes(each)) or "-",
                    choice_text(record.table.device, each.problem, each.choice),
                ]
            )
    size = size_name(record.table)
    headers = ["problem", size, "runs", "worst loss", f"measured {size}", "never measured", "config"]
    left = ("problem", size, "runs", f"measured {size}", "never measured", "config")
    text = (
        f"Shaded bands are the ranges of {size} that one row serves. Dots are tuned {size}, rings were probed between "
        f"them, crosses were held out. Hatched {size} have no measurement within a factor of two."
    )
    return Section(f"Ranges of {size}", text, pictures, Sheet(headers, sheet_rows, left))


def _draw(figure: Figure, ranges: Sequence[RangeRow], tuned: Sequence[Row]) -> None:
    axes = figure.subplots()
    size, spaces = ranges[0].problem.range_size, {each.choice.space for each in ranges}
    baseline = ranges[0].problem.baseline_space
    color = {**dict(zip(sorted(spaces - {baseline}), cycle(SERIES), strict=False)), baseline: "tie"}
    for place, each in enumerate(ranges):
        its = COLORS[color[each.choice.space]].light
        alpha = 0.16 if place % 2 else 0.30
        axes.axvspan(each.first, each.last + 0.999, color=its, alpha=alpha, lw=0, label=f"runs {each.choice.space}")
        for low, high in _holes(each):
            axes.axvspan(low, high, facecolor="none", edgecolor=COLORS["ink"].light, alpha=0.4, hatch="///", lw=0)
    sizes = [row.problem.size for row in tuned]
    times = [row.choices[0].time_ns / 1e3 for row in tuned]
    axes.plot(sizes, times, "-o", ms=4, color=COLORS["ink"].light, label=f"shipped, tuned {size}", lw=1.2)
    based = [row for row in tuned if row.baseline]
    library = [row.baseline.time_ns / 1e3 for row in based if row.baseline]
    grey, label = COLORS["tie"].light, f"{baseline}, tuned {size}"
    axes.plot([row.problem.size for row in based], library, "--s", ms=3.5, color=grey, label=label, lw=1.2)
    probed = sorted({m for each in ranges for m, _ in each.probed})
    held_out = sorted({m for each in ranges for m, _ in each.held_out})
    foot, marks = min(times, default=1.0) * 0.9, COLORS["ink"].light
    axes.plot(probed, [foot] * len(probed), "o", ms=4, mfc="none", color=marks, label=f"probed {size}")
    axes.plot(held_out, [foot] * len(held_out), "x", ms=5, color=marks, label=f"held-out {size}")
    axes.set(xscale="log", yscale="log", xlabel=size, ylabel="µs", title=ranges[0].problem.series_name)
    plain_ticks(axes)
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))  # each label once
    figure.legend(named.values(), named, loc="outside upper left", ncols=2)


def _holes(row: RangeRow) -> list[tuple[int, int]]:
    """Return the parts of a range further than a factor of two from any measured size."""
    measured = sorted({m for m, _ in (*row.tuned, *row.probed, *row.held_out)})
    marks = [row.first // 4, *measured, row.last * 4]
    gaps = pairwise(marks)
    found = ((max(row.first, 2 * low + 1), min(row.last, (high - 1) // 2)) for low, high in gaps)
    return [(low, high) for low, high in found if low < high]
