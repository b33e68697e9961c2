"""Draw the best-so-far curves of a comparison, as a picture by matplotlib and as a page by plotly."""

from __future__ import annotations

import io
import math
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gemmtune.engine.records.errors import ToolchainMissing
from gemmtune.engine.studies.comparison import Comparison

if TYPE_CHECKING:  # both take long to import, and plotly need not be installed
    from matplotlib.figure import Figure as Picture
    from plotly.graph_objects import Figure as Page

__all__ = ["curves_html", "curves_page", "curves_picture", "curves_png", "require_plotly"]

_X_TITLE, _Y_TITLE = "evaluations, failures included", "optimum / best found"
_PALETTE = (
    *("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd"),
    *("#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf"),
)
_COLUMNS = 3


def require_plotly() -> None:
    """Check that plotly, which draws the page, is installed.

    Raises:
        ToolchainMissing: plotly is not installed.
    """
    if find_spec("plotly") is None:
        raise ToolchainMissing("compare needs plotly to draw curves: pip install 'gemmtune[study]'")


def curves_picture(comparison: Comparison) -> Picture:
    """Return a matplotlib figure that a notebook draws: a panel per landscape, a curve per arm with its interval."""
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        def _repr_png_(self) -> bytes:
            return _png(self)

    titles, (rows, columns) = _titles(comparison), _grid(comparison)
    figure = NotebookFigure(figsize=(5.2 * columns, 3.6 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    evaluations = range(1, comparison.budget + 1)
    for axes, (landscape, title) in zip(panels, titles.items(), strict=False):
        for arm, color in _colors(comparison).items():
            curve = comparison.curve(arm, landscape)
            axes.plot(evaluations, curve.mean, label=arm, color=color)
            axes.fill_between(evaluations, curve.low, curve.high, color=color, alpha=0.2, linewidth=0)
        axes.set_title(title, fontsize="medium")
        axes.set_xlabel(_X_TITLE)
        axes.set_ylabel(_Y_TITLE)
        axes.set_ylim(_lowest(comparison), 1.005)
        axes.grid(alpha=0.3)
    for axes in panels[len(titles) :]:
        axes.set_axis_off()
    panels[0].legend(loc="lower right")
    return figure


def curves_png(comparison: Comparison) -> bytes:
    """Return the picture as a PNG; equal comparisons give equal bytes."""
    return _png(curves_picture(comparison))


def _png(figure: Picture) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=120, metadata={"Software": None})
    return out.getvalue()


def curves_page(comparison: Comparison) -> Page:
    """Return a plotly figure with the panels of the picture, values under the pointer, and arms to switch off."""
    from plotly.graph_objects import Scatter
    from plotly.subplots import make_subplots

    titles, (rows, columns) = _titles(comparison), _grid(comparison)
    figure = make_subplots(rows, columns, subplot_titles=list(titles.values()), x_title=_X_TITLE, y_title=_Y_TITLE)
    evaluations = list(range(1, comparison.budget + 1))
    there_and_back = [*evaluations, *reversed(evaluations)]
    for arm, color in _colors(comparison).items():
        for number, landscape in enumerate(titles):
            curve = comparison.curve(arm, landscape)
            band = Scatter(
                x=there_and_back, y=[*curve.high, *reversed(curve.low)], legendgroup=arm, hoverinfo="skip"
            ).update(fill="toself", fillcolor=color, opacity=0.2, line={"width": 0}, showlegend=False)
            line = Scatter(x=evaluations, y=list(curve.mean), name=arm, legendgroup=arm, hovertemplate="%{y:.4f}")
            line.update(line={"color": color}, mode="lines", showlegend=number == 0)
            for trace in (band, line):
                figure.add_trace(trace, row=number // columns + 1, col=number % columns + 1)
    figure.update_yaxes(range=[_lowest(comparison), 1.005])
    figure.update_layout(template="plotly_white", height=380 * rows, hovermode="x unified")
    return figure


def curves_html(comparison: Comparison) -> str:
    """Return the plotly figure as one HTML file that loads nothing else."""
    page: str = curves_page(comparison).to_html(include_plotlyjs=True, full_html=True, div_id="curves")
    return page


def _titles(comparison: Comparison) -> dict[str, str]:
    """Return the title of each landscape's panel; with several landscapes, their mean comes first."""
    number = len(comparison.landscapes)
    mean = {"": f"mean of {number} landscapes"} if number > 1 else {}
    return mean | {name: name for name in comparison.landscapes}


def _grid(comparison: Comparison) -> tuple[int, int]:
    """Return the rows and columns of panels."""
    columns = min(_COLUMNS, len(_titles(comparison)))
    return math.ceil(len(_titles(comparison)) / columns), columns


def _colors(comparison: Comparison) -> dict[str, str]:
    return {arm: _PALETTE[number % len(_PALETTE)] for number, arm in enumerate(comparison.arms)}


def _lowest(comparison: Comparison) -> float:
    """Return the lowest fraction worth showing, so that every curve is visible from the sixth evaluation on."""
    shown = [curve.low[min(5, comparison.budget - 1)] for curve in comparison.curves]
    return math.floor(10 * min(shown)) / 10
