"""Best-so-far curves as a page to look into. Imports plotly."""

from __future__ import annotations

import math

from plotly.colors import qualitative
from plotly.graph_objects import Figure, Scatter
from plotly.subplots import make_subplots

from gemmtune.engine.report.curves import AXES, floor, panels
from gemmtune.engine.studies.comparison import Comparison, Course

__all__ = ["curves_html"]


def curves_html(comparison: Comparison) -> str:
    """One file that needs nothing else: panels as in the picture, values under the pointer, arms to switch off."""
    titles = panels(comparison)
    columns = min(3, len(titles))
    rows = math.ceil(len(titles) / columns)
    figure = make_subplots(rows, columns, subplot_titles=list(titles.values()), x_title=AXES[0], y_title=AXES[1])
    colors = qualitative.Plotly
    for number, arm in enumerate(comparison.arms):
        for place, landscape in enumerate(titles):
            at = {"row": place // columns + 1, "col": place % columns + 1}
            _draw(figure, comparison.of(arm, landscape), colors[number % len(colors)], at, legend=place == 0)
    figure.update_yaxes(range=[floor(comparison), 1.005])
    figure.update_layout(template="plotly_white", height=380 * rows, hovermode="x unified")
    page: str = figure.to_html(include_plotlyjs=True, full_html=True, div_id="curves")
    return page


def _draw(figure: Figure, course: Course, color: str, at: dict[str, int], *, legend: bool) -> None:
    evaluations = list(range(1, len(course.mean) + 1))
    figure.add_trace(
        Scatter(
            x=[*evaluations, *reversed(evaluations)],
            y=[*course.high, *reversed(course.low)],
            fill="toself",
            fillcolor=color,
            opacity=0.2,
            line={"width": 0},
            hoverinfo="skip",
            legendgroup=course.arm,
            showlegend=False,
        ),
        **at,
    )
    line = Scatter(x=evaluations, y=list(course.mean), name=course.arm, legendgroup=course.arm, showlegend=legend)
    figure.add_trace(line.update(line={"color": color}, mode="lines", hovertemplate="%{y:.4f}"), **at)
