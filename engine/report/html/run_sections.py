"""Sections on the run: load and clocks over time, and failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.verdict import Trust
from gemmtune.engine.report.campaign_record import CampaignRecord
from gemmtune.engine.report.html.drawing import COLORS, Picture
from gemmtune.engine.report.html.page import Section, Sheet
from gemmtune.engine.report.progress.run import LoadSample

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def timeline(record: CampaignRecord) -> Section:
    """Draw builders, GPUs and waiting over the run, and the SM clock."""
    title = "Timeline"
    load = record.run.load if record.run else ()
    clocks = [(e.created_at, e.clock_mhz) for p in record.problems for e in p.evaluations if e.clock_mhz is not None]
    pictures = []
    if len(load) > 1:
        label = "Configs that wait, are built and are timed, over the run"
        pictures.append(Picture(label, 3.0, partial(_draw_load, load=load)))
    if clocks:
        pictures.append(Picture("SM clock after each measurement", 2.2, partial(_draw_clocks, clocks=clocks)))
    if not pictures:
        return Section(title, "Nothing waits in a replay, and it has no clocks; a GPU campaign shows both here.")
    text = "Configs that wait for a builder, that are built and that are timed, with the GPUs that have work."
    rows = [
        [f"{s.seconds:.1f}", str(s.queued), str(s.building), str(s.timing), f"{s.busy} of {s.workers}"] for s in load
    ]
    thinned = rows[:: max(1, len(rows) // 50)]
    sheet = Sheet(["seconds", "queued", "building", "timing", "busy GPUs"], thinned) if thinned else None
    return Section(title, text, pictures, sheet)


def _draw_load(figure: Figure, load: Sequence[LoadSample]) -> None:
    axes = figure.subplots()
    at = [each.seconds for each in load]
    for name, color in (("building", "series1"), ("timing", "series2"), ("queued", "series4")):
        values = [getattr(each, name) for each in load]
        axes.step(at, values, where="post", color=COLORS[color].light, label=name, lw=1.2)
    share = [each.busy for each in load]
    axes.step(at, share, where="post", color=COLORS["ink"].light, label="busy GPUs", lw=1.6)
    axes.set(xlabel="seconds", ylabel="configs, GPUs", yscale="symlog", ylim=(0, None))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    figure.legend(loc="outside upper left", ncols=2)


def _draw_clocks(figure: Figure, clocks: Sequence[tuple[str, int]]) -> None:
    axes = figure.subplots()
    begin = datetime.fromisoformat(min(clocks)[0])
    at = [(datetime.fromisoformat(when) - begin).total_seconds() for when, _ in clocks]
    axes.scatter(at, [mhz for _, mhz in clocks], s=5, alpha=0.5, color=COLORS["series3"].light)
    axes.set(xlabel="seconds", ylabel="SM clock, MHz")


def boards(record: CampaignRecord) -> Section | None:
    """List the boards that were found to be off or bad; None where there is none."""
    rows = [[b.board, b.worker, b.trust.value, b.reason] for b in record.boards if b.trust is not Trust.SEEN]
    text = "Boards whose times or results differ from those of others. Nothing of a quarantined one is in the table."
    headers = ["board", "worker", "trust", "reason"]
    return Section("Boards", text, sheet=Sheet(headers, rows, headers)) if rows else None


def failures(record: CampaignRecord) -> Section:
    """List failed evaluations by status and reason."""
    failed = Counter(
        (e.status.value, _first_line(e.reason))
        for p in record.problems
        for e in p.evaluations
        if e.status is not Status.OK
    )
    total = sum(len(p.evaluations) for p in record.problems)
    if not failed:
        return Section("Failures", f"None of {total} evaluations failed." if total else "No evaluations are at hand.")
    by_status = Counter[str]()
    for (status, _), number in failed.items():
        by_status[status] += number

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        names = [name for name, _ in by_status.most_common()]
        bars = axes.barh(names, [by_status[name] for name in names], color=COLORS["loss"].light, height=0.6)
        axes.bar_label(bars, padding=3)
        axes.invert_yaxis()
        axes.set_xlabel("evaluations")
        axes.locator_params(axis="x", integer=True)
        axes.margins(x=0.12)
        axes.grid(axis="y", visible=False)

    picture = Picture("Failed evaluations by status", 0.6 + 0.27 * len(by_status), draw)
    rows = [[status, str(number), reason] for (status, reason), number in failed.most_common(100)]
    text = f"{sum(failed.values())} of {total} evaluations failed. Each is stored, and costs one worker at most."
    return Section("Failures", text, [picture], Sheet(["status", "evaluations", "reason"], rows, ("status", "reason")))


def _first_line(reason: str) -> str:
    line = next(iter(reason.strip().splitlines()), "-")
    return line if len(line) <= 160 else f"{line[:159]}…"
