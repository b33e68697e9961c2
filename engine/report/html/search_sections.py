"""Sections on the search: regret, best so far, and parameters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from math import ceil, nan
from statistics import median
from typing import TYPE_CHECKING

from gemmtune.engine.records.config import Value
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.workload import baseline_words
from gemmtune.engine.report.campaign_record import CampaignRecord, ProblemRecord, best_so_far, within
from gemmtune.engine.report.html.drawing import COLORS, LEAST_LOSS, PANELS, Picture, grid, loss_ticks, shortened
from gemmtune.engine.report.html.page import Bar, Bars, Section, Sheet
from gemmtune.engine.report.html.param_effects import Scored, importances
from gemmtune.engine.report.layout import readable, readable_unit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 3  # panels per row


def regret(record: CampaignRecord) -> Section:
    """Draw the slowdown of the best config so far against the recorded optimum, over evaluations."""
    title = "Regret over evaluations"
    known = [p for p in record.problems if p.optimum is not None and p.scores]
    if not known:
        return Section(title, "The optimum is unknown: only replays of recorded landscapes know it.")
    longest = max(len(p.evaluations) for p in known)
    curves = []
    for p in known:
        best = best_so_far(each.score for each in p.evaluations)
        losses = [None if b is None or p.optimum is None else max(b / p.optimum - 1, 0.0) for b in best]
        curves.append(losses + losses[-1:] * (longest - len(losses)))
    middle = [median(each) for at in zip(*curves, strict=True) if (each := [c for c in at if c is not None])]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.set(xlabel="evaluations, failures included", ylabel="slower than the optimum")
        for number, losses in enumerate(curves):
            shown = [nan if loss is None else max(loss, LEAST_LOSS) for loss in losses]
            label = "one problem" if number == 0 else None
            axes.plot(range(1, longest + 1), shown, color=COLORS["series0"].light, alpha=0.45, lw=0.8, label=label)
        start = longest - len(middle) + 1
        shown = [max(loss, LEAST_LOSS) for loss in middle]
        axes.plot(range(start, longest + 1), shown, color=COLORS["ink"].light, lw=2, label="median")
        loss_ticks(axes)
        figure.legend(loc="outside upper left", ncols=2)

    picture = Picture(f"Regret over evaluations of {len(known)} problems", 3.4, draw)
    marks = [n for n in (8, 16, 32, 64, 128, 256, 512) if n <= longest] or [longest]
    rows = [
        [p.problem.name, *("-" if (loss := losses[n - 1]) is None else f"{loss:.2%}" for n in marks)]
        for p, losses in zip(known, curves, strict=True)
    ]
    sheet = Sheet(["problem", *(f"after {n}" for n in marks)], rows, ("problem",))
    text = "Slowdown of the best config so far against the best of the recorded landscape. Lower is better."
    return Section(title, text, [picture], sheet)


def best_over_time(record: CampaignRecord) -> Section:
    """Draw the best score so far of each problem, over evaluations and, where measured, over seconds."""
    title = "Best so far"
    shown = [p for p in record.problems if p.scores][:PANELS]
    if not shown:
        return Section(title, "No evaluations are at hand: the report was made of a table alone.")
    unit = readable_unit(record.objective.unit)
    timed = Evidence.MEASURED in record.evidence
    height = 0.95 + 1.7 * ceil(len(shown) / _COLUMNS)
    pictures = [
        Picture(
            f"Best so far over {over} of {len(shown)} problems",
            height,
            partial(_draw_best, shown=shown, unit=record.objective.unit, over=over, height=height),
            solved=False,
        )
        for over in ("evaluations", *(("seconds",) if timed else ()))
    ]
    rows = [
        [
            p.problem.name,
            str(len(p.evaluations)),
            str(_evaluations_to(p, 0.02)),
            readable(min(p.scores), record.objective.unit),
            f"{within(p, 0.02)} of {len(p.scores)}",
        ]
        for p in record.problems
        if p.scores
    ]
    headers = ["problem", "evaluations", "until within 2 %", f"best {unit}", "configs within 2 %"]
    more = f" The {PANELS} problems with the largest weighted time." if len(record.problems) > PANELS else ""
    words = baseline_words(p.problem for p in record.problems)
    line = f"; the dashed line is {words}" if any(p.row.baseline for p in shown) else ""
    text = f"Each step is a better config{line}.{more}"
    if not timed:
        text += " A replay or an estimate has no durations, so there is no picture over seconds."
    return Section(title, text, pictures, Sheet(headers, rows, ("problem",)))


def _draw_best(figure: Figure, shown: Sequence[ProblemRecord], unit: str, over: str, height: float) -> None:
    begin, at_time = min(e.created_at for p in shown for e in p.evaluations), datetime.fromisoformat
    panels = grid(figure, len(shown), _COLUMNS, height)
    for axes, p in zip(panels, shown, strict=True):
        best = best_so_far(each.score for each in p.evaluations)
        at: Sequence[float] = range(1, len(best) + 1)
        if over == "seconds":
            at = [(at_time(e.created_at) - at_time(begin)).total_seconds() for e in p.evaluations]
        values = [nan if b is None else float(readable(b, unit)) for b in best]
        axes.step(at, values, where="post", color=COLORS["series0"].light, label="best so far")
        low = high = float(readable(min(p.scores), unit))
        if p.row.baseline:
            high = float(readable(p.row.baseline.time_ns, unit))
            axes.axhline(high, color=COLORS["tie"].light, linestyle="--", label=p.problem.baseline_space)
        axes.set_title(shortened(p.problem.name, 28), fontsize=8)
        axes.set_ylim(min(low, high) * 0.97, max(low * 1.5, high * 1.1))
    figure.supxlabel(over, fontsize=9)
    figure.supylabel(f"best so far, {readable_unit(unit)}", fontsize=9)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)


def params(record: CampaignRecord) -> Section:
    """Draw how close to the best each value of each parameter came, over all problems."""
    title, space = "Parameters", most_searched(record)
    if not space:
        return Section(title, "No evaluations are at hand: the report was made of a table alone.")
    losses: defaultdict[str, defaultdict[Value, list[float]]] = defaultdict(lambda: defaultdict(list))
    for of_space in scored(record, space):
        best: defaultdict[tuple[str, Value], list[float]] = defaultdict(list)
        for config, score in of_space:
            for name in config:
                best[name, config[name]].append(score)
        least = min((score for _, score in of_space), default=0.0)
        for (name, value), scores in best.items():
            losses[name][value].append(min(scores) / least - 1)
    chosen = {name: dict(sorted(of.items(), key=lambda kv: sort_key(kv[0]))) for name, of in losses.items()}
    chosen = {name: of for name, of in chosen.items() if len(of) > 1}
    if not chosen:
        return Section(title, "Every config has one value per parameter.")
    height = 0.95 + 1.7 * ceil(len(chosen) / _COLUMNS)

    def draw(figure: Figure) -> None:
        panels = grid(figure, len(chosen), _COLUMNS, height)
        for axes, (name, of) in zip(panels, chosen.items(), strict=True):
            for place, values in enumerate(of.values()):
                axes.scatter([place] * len(values), values, s=8, alpha=0.5, color=COLORS["series0"].light)
                axes.hlines(median(values), place - 0.3, place + 0.3, color=COLORS["ink"].light, lw=2)
            axes.set_xticks(range(0, len(of), step := 1 + len(of) // 9), [str(each) for each in of][::step], fontsize=8)
            axes.set_title(name, fontsize=8)
            axes.set_ylim(-0.02, 0.6)
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        figure.supylabel("behind the problem's best", fontsize=9)

    picture = Picture(f"Loss by value of each parameter of {space}", height, draw, solved=False)
    rows = [
        [name, str(value), str(len(values)), f"{median(values):.1%}", str(sum(v == 0 for v in values))]
        for name, of in chosen.items()
        for value, values in of.items()
    ]
    headers = ["parameter", "value", "problems", "median loss", "best of problems"]
    weights = importances(scored(record, space))
    text = (
        "Importance is the share of the variance of the logarithm of the score, within problems, that a parameter of "
        f"{space} explains alone, less what chance would explain. The pictures show the best evaluated config with "
        "each value, behind the problem's best: a dot is a problem, a line the median. Only configs that the sampler "
        "chose were evaluated; losses above 60 % are out of the picture."
    )
    bars = [
        Bar(name, 0.0, share / max(*weights.values(), 1e-9), "accent", f"{share:.1%}")
        for name, share in weights.items()
    ]
    sheet = Sheet(headers, rows, ("parameter",))
    return Section(title, text, [picture], sheet, bars=Bars((), bars) if bars else None)


def _evaluations_to(problem: ProblemRecord, fraction: float) -> int:
    least = min(problem.scores)
    best = best_so_far(each.score for each in problem.evaluations)
    return next(n for n, score in enumerate(best, 1) if score is not None and score <= least * (1 + fraction))


def most_searched(record: CampaignRecord) -> str:
    """Return the space with the most timed configs; empty where there are none."""
    spaces = Counter(e.space for p in record.problems for e in p.evaluations if e.score is not None)
    return next((space for space, _ in spaces.most_common(1)), "")


def scored(record: CampaignRecord, space: str) -> Scored:
    """Return the timed configs of a space with their scores, for each problem."""
    return [
        [(e.config, e.score) for e in p.evaluations if e.space == space and e.score is not None]
        for p in record.problems
    ]


def sort_key(value: Value) -> tuple[bool, float, str]:
    """Return a key that sorts numbers before texts."""
    return (True, 0.0, value) if isinstance(value, str) else (False, float(value), "")
