"""Best-so-far curves as a picture. Imports matplotlib."""

from __future__ import annotations

import io
import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gemmtune.engine.report.curves import AXES, floor, panels
from gemmtune.engine.studies.comparison import Comparison

__all__ = ["curves_png"]


def curves_png(comparison: Comparison) -> bytes:
    """A panel a landscape, one curve an arm with the band of its interval; the same comparison gives the same bytes."""
    titles = panels(comparison)
    columns = min(3, len(titles))
    rows = math.ceil(len(titles) / columns)
    figure = Figure(figsize=(5.2 * columns, 3.6 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (landscape, title) in zip(grid, titles.items(), strict=False):
        _panel(axes, comparison, landscape, title)
    for axes in grid[len(titles) :]:
        axes.set_axis_off()
    grid[0].legend(loc="lower right")
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=120, metadata={"Software": None})
    return out.getvalue()


def _panel(axes: Axes, comparison: Comparison, landscape: str, title: str) -> None:
    evaluations = range(1, comparison.budget + 1)
    for arm in comparison.arms:
        course = comparison.of(arm, landscape)
        (line,) = axes.plot(evaluations, course.mean, label=arm)
        axes.fill_between(evaluations, course.low, course.high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel(AXES[0])
    axes.set_ylabel(AXES[1])
    axes.set_ylim(floor(comparison), 1.005)
    axes.grid(alpha=0.3)
