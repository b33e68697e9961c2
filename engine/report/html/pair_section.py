"""Section on pairs of parameters: how close to the best each pair of values came."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

from gemmtune.engine.report.campaign_record import CampaignRecord
from gemmtune.engine.report.html.drawing import COLORS, Picture, grid
from gemmtune.engine.report.html.page import Section, Sheet
from gemmtune.engine.report.html.param_effects import PairLoss, pair_losses
from gemmtune.engine.report.html.search_sections import most_searched, scored, sort_key

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PAIRS = 4
_COLUMNS = 2
_WORST = 0.5  # loss from which a cell is blank


def param_pairs(record: CampaignRecord) -> Section:
    """Draw the loss of each pair of values, for the pairs of parameters that matter most."""
    title, space = "Parameter pairs", most_searched(record)
    pairs = pair_losses(scored(record, space), _PAIRS) if space else []
    if not pairs:
        return Section(title, "No two parameters have several values with several evaluations each.")
    height = 0.95 + 2.1 * ceil(len(pairs) / _COLUMNS)

    def draw(figure: Figure) -> None:
        for axes, pair in zip(grid(figure, len(pairs), _COLUMNS, height), pairs, strict=True):
            _draw_pair(axes, pair)

    label = f"Loss by pairs of values of {space}"
    rows = [
        [each.names[0], str(each.values[0]), each.names[1], str(each.values[1]), str(each.problems), f"{each.loss:.1%}"]
        for pair in pairs
        for each in sorted(pair, key=lambda each: each.loss)
    ]
    text = (
        f"The best evaluated config of {space} with both values, in percent behind the problem's best: the median over "
        "problems. The stronger the colour, the closer; a pair without a number was not evaluated. The parameters are "
        "those of the largest importance."
    )
    headers = ["parameter", "value", "with", "its value", "problems", "median loss"]
    return Section(
        title, text, [Picture(label, height, draw, solved=False)], Sheet(headers, rows, ("parameter", "with"))
    )


def _draw_pair(axes: Axes, pair: Sequence[PairLoss]) -> None:
    """Draw one cell per pair of values, the parameter with more values along x."""
    values = [sorted({each.values[side] for each in pair}, key=sort_key) for side in (0, 1)]
    across = 0 if len(values[0]) >= len(values[1]) else 1
    xs, ys = values[across], values[1 - across]
    for each in pair:
        x, y = xs.index(each.values[across]), ys.index(each.values[1 - across])
        shade = 0.6 * max(0.0, 1 - each.loss / _WORST)
        axes.bar(x, 1, 1, y - 0.5, color=COLORS["series0"].light, alpha=shade, lw=0)
        axes.text(x, y, f"{min(100 * each.loss, 999):.0f}", ha="center", va="center", fontsize=8)
    axes.set_xticks(range(len(xs)), [str(x) for x in xs], fontsize=8)
    axes.set_yticks(range(len(ys)), [str(y) for y in ys], fontsize=8)
    axes.set(xlim=(-0.5, len(xs) - 0.5), ylim=(-0.5, len(ys) - 0.5))
    axes.set_title(f"{pair[0].names[1 - across]} over {pair[0].names[across]}", fontsize=8)
    axes.grid(visible=False)
