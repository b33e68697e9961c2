"""Curves of a comparison of samplers: as a figure for notebooks, as a picture, and as a page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil, nan
from typing import TYPE_CHECKING

from gemmtune.engine.report.html.drawing import (
    COLORS,
    LEAST_LOSS,
    SERIES,
    Picture,
    canvas,
    grid,
    loss_ticks,
    png,
    wrapped,
)
from gemmtune.engine.report.html.page import Card, Page, Section, Sheet, render
from gemmtune.engine.report.layout import count
from gemmtune.engine.report.studies import fraction_text, interval_text, mean_score_text, score_text, settings_text
from gemmtune.engine.studies.comparison import BUDGETS, GOALS, Comparison, SecondsCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3
_MEAN = ("",)


def curves_picture(comparison: Comparison) -> Figure:
    """Return a matplotlib figure that a notebook draws: a panel per landscape, a curve per arm with its interval."""
    names = _panels(comparison)
    return _notebook(partial(_draw, comparison=comparison, names=names), len(names))


def seconds_picture(curves: Sequence[SecondsCurve]) -> Figure:
    """Return a matplotlib figure that a notebook draws: a panel per landscape, over seconds."""
    names = list(dict.fromkeys(curve.landscape for curve in curves))
    arms = list(dict.fromkeys(curve.arm for curve in curves))

    def draw(figure: Figure) -> None:
        panels = dict(zip(names, _axes(figure, len(names)), strict=True))
        for curve in curves:
            color, dashes = _line(arms.index(curve.arm))
            axes = panels[curve.landscape]
            axes.plot(curve.seconds, _regret(curve.mean), label=curve.arm, color=color, linestyle=dashes, lw=1.5)
        _finish(figure, panels, "recorded seconds, and the sampler's own")

    return _notebook(draw, len(names))


def _notebook(draw: Callable[[Figure], None], panels: int) -> Figure:
    """Return a figure that shows itself as PNG."""
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            return png(self)

    with canvas(_height(panels), NotebookFigure, solved=panels == 1) as figure:
        draw(figure)
    figure.set_facecolor(COLORS["paper"].light)
    return figure


def curves_png(comparison: Comparison) -> bytes:
    """Return the picture as a PNG; equal comparisons give equal bytes."""
    return png(curves_picture(comparison))


def comparison_html(comparison: Comparison, settings: Mapping[str, object], provenance: Sequence[str]) -> str:
    """Return the page of a comparison, with further settings of the study and the provenance of its landscapes.

    Equal comparisons give equal text.
    """
    terms = f"{count(len(comparison.landscapes), 'landscape')}, budget {comparison.budget}"
    terms += f", {count(comparison.seeds, 'seed')}, {settings_text(settings)}"
    sections = [_mean(comparison), _goals(comparison), _scores(comparison)]
    if len(comparison.landscapes) > 1:
        names = comparison.landscapes
        draw = partial(_draw, comparison=comparison, names=names)
        picture = Picture(f"Regret on each of {len(names)} landscapes", _height(len(names)), draw, solved=False)
        sections.insert(1, Section("Each landscape", "Regret on each landscape by itself.", [picture]))
    subtitle = " · ".join(part for part in (terms, *provenance) if part)
    title = f"gemmtune compare: {', '.join(comparison.arms)}"
    return render(Page(title, subtitle, sections, _cards(comparison)))


def _cards(comparison: Comparison) -> list[Card]:
    best = max(comparison.arms, key=lambda arm: comparison.curve(arm).mean[-1])
    loss = 1 / comparison.curve(best).mean[-1] - 1 if comparison.curve(best).mean[-1] else 1.0
    return [Card(best, f"found the best configs: {loss:.2%} behind the optimum after {comparison.budget} evaluations")]


def _mean(comparison: Comparison) -> Section:
    number, draw = len(comparison.landscapes), partial(_draw, comparison=comparison, names=_MEAN)
    picture = Picture(f"Mean regret over evaluations of {len(comparison.arms)} samplers", 3.6, draw)
    budgets = [budget for budget in BUDGETS if budget <= comparison.budget] or [comparison.budget]
    rows = []
    for arm in comparison.arms:
        curve = comparison.curve(arm)
        rows.append([arm, *(fraction_text(curve, budget) for budget in budgets)])
    text = (
        f"Slowdown of the best config so far against the optimum, mean over {count(number, 'landscape')} and "
        f"{count(comparison.seeds, 'seed')}. Lower is better. The numbers are optimum / best found "
        f"{interval_text(comparison.seeds, number)}."
    )
    sheet = Sheet(["sampler", *(f"after {b}" for b in budgets)], rows, ("sampler",))
    return Section("Regret over evaluations", text, [picture], sheet)


def _goals(comparison: Comparison) -> Section:
    rows = []
    for arm in comparison.arms:
        reached = [comparison.curve(arm).reached[goal] for goal in GOALS]
        cells = (f"> {comparison.budget}" if r.median is None else str(r.median) for r in reached)
        rows.append([arm, *cells, *(f"{r.share:.0%}" for r in reached)])
    headers = ["sampler", *(f"to {goal:.0%}" for goal in GOALS), *(f"searches that reach {goal:.0%}" for goal in GOALS)]
    text = "Evaluations until the median search has found this fraction of the optimum, and the share that finds it."
    return Section("Evaluations to a goal", text, sheet=Sheet(headers, rows, ("sampler",)))


def _scores(comparison: Comparison) -> Section:
    means = [mean_score_text(comparison, arm) for arm in comparison.arms]
    curves = [(name, [comparison.curve(arm, name) for arm in comparison.arms]) for name in _panels(comparison)]
    rows = [[name, *map(score_text, of)] if name else ["mean", *means] for name, of in curves]
    text = (
        f"Performance score P {interval_text(comparison.seeds, 1)}: 0 is random search, 1 the optimum from the start. "
        "A dash: the landscape is too easy for P, or P looks at more evaluations than the budget."
    )
    sheet = Sheet(["landscape", *comparison.arms], rows, ("landscape",))
    return Section("Score P by landscape", text, sheet=sheet)


def _panels(comparison: Comparison) -> Sequence[str]:
    """Return the names of the panels; with several landscapes, their mean comes first."""
    return (*_MEAN, *comparison.landscapes) if len(comparison.landscapes) > 1 else comparison.landscapes


def _height(panels: int) -> float:
    return 0.95 + 1.9 * ceil(panels / _COLUMNS) if panels > 1 else 3.6


def _draw(figure: Figure, comparison: Comparison, names: Sequence[str]) -> None:
    """Draw a panel per landscape; the empty name is the mean over all."""
    panels = _axes(figure, len(names))
    evaluations = range(1, comparison.budget + 1)
    for axes, name in zip(panels, names, strict=True):
        for number, arm in enumerate(comparison.arms):
            (color, dashes), curve = _line(number), comparison.curve(arm, name)
            axes.plot(evaluations, _regret(curve.mean), label=arm, color=color, linestyle=dashes, lw=1.5)
            axes.fill_between(evaluations, _regret(curve.high), _regret(curve.low), color=color, alpha=0.18, lw=0)
    titles = [name or f"mean of {len(comparison.landscapes)} landscapes" for name in names]
    _finish(figure, dict(zip(titles, panels, strict=True)), "evaluations, failures included")


def _axes(figure: Figure, panels: int) -> list[Axes]:
    return grid(figure, panels, _COLUMNS, _height(panels)) if panels > 1 else [figure.subplots()]


def _line(number: int) -> tuple[str, str]:
    """Return colour and dashes of an arm by its number."""
    return COLORS[SERIES[number % len(SERIES)]].light, ("-", "--", ":", "-.")[number // len(SERIES) % 4]


def _finish(figure: Figure, panels: Mapping[str, Axes], over: str) -> None:
    """Add ticks, titles, the names of the axes and the legend."""
    several = len(panels) > 1
    for title, axes in panels.items():
        loss_ticks(axes)
        axes.set_title(wrapped(title, 30), fontsize=8 if several else 9)
    figure.supxlabel(over, fontsize=9)
    figure.supylabel("slower than the optimum", fontsize=9)
    first = next(iter(panels.values()))
    figure.legend(*first.get_legend_handles_labels(), loc="outside upper left", ncols=5 if several else 3)


def _regret(fractions: Sequence[float | None]) -> list[float]:
    """Return the slowdown against the optimum, within what the axis shows; NaN, which is not drawn, for None."""
    return [nan if found is None else max(1 / max(found, 1e-2) - 1, LEAST_LOSS) for found in fractions]
