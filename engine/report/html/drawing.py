"""Draw figures as SVG that takes its colours from the page, in light and in dark."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Literal

from markupsafe import Markup

if TYPE_CHECKING:  # matplotlib takes a while to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = 6
"""Most problems that get a panel of their own in a picture."""

LEAST_LOSS = 1e-4
"""Loss that smaller ones are drawn at, 0 among them: a logarithmic axis has no zero."""

_WIDTH = 7.6  # of all panels of a line, inches; a narrow page has fewer in a line
_TITLE, _TICKS, _MARGIN = 0.36, 0.26, 0.12  # above, below and right of a panel, inches: two lines, one, half a label
_LETTER = 0.068  # of a panel's names, inches
_ZOOM = 1.3  # pixels per point of a panel
_NARROW = 4.8  # of one picture, inches: its text stays legible where it fills a phone


@dataclass(frozen=True, slots=True)
class Color:
    """A colour of the page; no two have one light value, by which `svg` finds them."""

    light: str
    """Colour on a light page and in files of pixels."""
    dark: str
    """Colour on a dark page."""


COLORS = {
    "ink": Color("#1b1f24", "#e6e9ed"),
    "muted": Color("#5a6472", "#a3adba"),
    "grid": Color("#dde2e8", "#343b45"),
    "lit": Color("#eef3f8", "#222a34"),
    "paper": Color("#ffffff", "#15181d"),
    # Okabe and Ito's colours, which readers with colour-vision deficiency tell apart, with contrast on both pages.
    # A gain is green, what gains nothing (the baseline) grey, a loss or a fault orange; no series is like one of them.
    "win": Color("#00785a", "#2fc79a"),
    "tie": Color("#6b7683", "#98a3b0"),
    "loss": Color("#b84a00", "#ff9152"),
    "series0": Color("#0067a3", "#56b4e9"),
    "series1": Color("#a8447f", "#e78ac3"),
    "series2": Color("#8a6a00", "#e6c229"),
    "series3": Color("#5b4bb7", "#a99bff"),
    "series4": Color("#7a2d1d", "#cbb09c"),
}
"""Colours by the name of their CSS variable."""

SERIES = tuple(name for name in COLORS if name.startswith("series"))
"""Names of the colours that tell series apart, in order."""

MARKERS: dict[str, Literal["o", "D", "s"]] = {"win": "o", "tie": "D", "loss": "s"}
"""Marker of a row by its kind, so that no picture tells kinds apart by colour alone."""

_STYLE: dict[Any, object] = {
    "axes.edgecolor": COLORS["muted"].light,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelcolor": COLORS["ink"].light,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": COLORS["ink"].light,
    "axes.titlesize": 9,
    "figure.facecolor": "none",
    "font.sans-serif": ["DejaVu Sans", "Verdana"],
    "font.size": 9,
    "grid.color": COLORS["grid"].light,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "gemmtune",
    "text.color": COLORS["ink"].light,
    "text.parse_math": False,
    "xtick.color": COLORS["muted"].light,
    "xtick.labelcolor": COLORS["ink"].light,
    "ytick.color": COLORS["muted"].light,
    "ytick.labelcolor": COLORS["ink"].light,
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that is drawn when a page is rendered."""

    label: str
    """Words that a screen reader speaks."""
    height: float
    """Height of the figure, inches."""
    draw: Callable[[Figure], None]
    """Function that draws on an empty figure of `canvas`."""
    solved: bool = True
    """Whether the layout is solved; not for a figure of `grid`, whose margins are fixed."""

    def svg(self) -> Markup:
        """Draw the picture and return it as an SVG element."""
        with canvas(self.height, solved=self.solved) as figure:
            self.draw(figure)
            return svg(figure, self.label)


@contextmanager
def canvas(height: float, of: type[Figure] | None = None, *, solved: bool = True) -> Iterator[Figure]:
    """Yield an empty figure in the page's style, with its height in inches; draw and call `svg` inside the block.

    A figure of `grid` is not `solved`: its margins are fixed, and it is wider.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        yield (of or Figure)(figsize=(_NARROW if solved else _WIDTH, height), layout="constrained" if solved else None)


def png(figure: Figure) -> bytes:
    """Return the figure as a PNG on light paper; equal figures give equal bytes."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=144, facecolor=COLORS["paper"].light, metadata={"Software": None})
    return out.getvalue()


def svg(figure: Figure, label: str) -> Markup:
    """Return the figure as SVG for which a screen reader speaks the label; equal figures give equal text."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    out = io.StringIO()
    figure.dpi = FigureCanvasSVG.fixed_dpi
    if (layout := figure.get_layout_engine()) is not None:  # savefig would draw the figure twice to solve it
        FigureCanvasSVG(figure)
        layout.execute(figure)
        figure.set_layout_engine("none")
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :].replace("\n", " ")
    for name, color in COLORS.items():
        text = text.replace(color.light, f"var(--{name})")
    text = text.replace("<a xlink:href=", '<a class="mark" tabindex="-1" href=').replace(' target="_blank"', "")
    if figure.get_figwidth() > _NARROW:
        return _panels(figure, text, label)
    opening = Markup('<svg class="picture" role="img" aria-label="{}" ').format(label)
    return opening + Markup(text.removeprefix("<svg "))  # noqa: S704 matplotlib escapes the texts it draws


def _panels(figure: Figure, text: str, label: str) -> Markup:
    """Return the panels of a figure of `grid` as a drawing each, which the page puts into as many columns as fit."""
    scale, height = 72.0, figure.get_figheight()
    boxes = [axes.get_position() for axes in figure.axes]
    lefts, rights = sorted({box.x0 for box in boxes}), sorted({box.x1 for box in boxes})
    gap = (lefts[1] - rights[0] if len(lefts) > 1 else lefts[0]) * _WIDTH
    width = (rights[0] - lefts[0]) * _WIDTH + gap + _MARGIN
    drawings = []
    for number, (axes, box) in enumerate(zip(figure.axes, boxes, strict=True), 1):
        if axes.axison:
            top, bottom = (1 - box.y1) * height - _TITLE, (1 - box.y0) * height + _TICKS
            view = (box.x0 * _WIDTH - gap, top, width, bottom - top)
            drawings.append(_drawing("panel", [scale * each for each in view], _group(text, f'<g id="axes_{number}">')))
    heads = list[Markup]()
    for legend in figure.legends:
        box = legend.get_window_extent()
        place = [box.x0 - 2, scale * height - box.y1 - 2, box.width + 4, box.height + 4]
        group = _group(text, f'<g id="legend_{len(heads) + 1}">')
        heads.append(_drawing("legend", place, group, f"width: {_ZOOM * place[2]:.0f}px"))
    said = " over ".join(filter(None, (figure.get_supylabel(), figure.get_supxlabel())))
    caption = Markup('<figcaption class="muted">{}</figcaption>').format(said) if said else ""
    shared = "".join(re.findall(r"<defs>.*?</defs>", text[: text.index("<g ")] + text[text.rindex("</g>") :]))
    clips = Markup(f'<svg width="0" height="0" aria-hidden="true">{shared}</svg>')  # noqa: S704
    columns = f"repeat(auto-fill, minmax(min(100%, {_ZOOM * scale * width:.0f}px), 1fr))"
    opening = Markup('<div class="panels" role="img" aria-label="{}" style="grid-template-columns: {}">')
    whole = [*heads, caption, opening.format(label, columns), *drawings, Markup("</div>"), clips]
    return Markup("").join(whole)


def _drawing(kind: str, view: Sequence[float], group: str, style: str = "") -> Markup:
    box = " ".join(f"{each:.2f}" for each in view)
    return Markup(f'<svg class="{kind}" viewBox="{box}" style="{style}">{group}</svg>')  # noqa: S704


def _group(text: str, opening: str) -> str:
    """Return the group that begins so, with everything in it."""
    start, depth = text.index(opening), 0
    for tag in re.finditer(r"</?g\b[^>]*>", text[start:]):
        depth += 0 if tag[0].endswith("/>") else -1 if tag[0].startswith("</") else 1
        if not depth:
            return text[start : start + tag.end()]
    raise ValueError(f"{opening} has no end")


def grid(figure: Figure, number: int, columns: int, height: float, letters: int = 0) -> list[Axes]:
    """Divide a figure of `canvas` into panels of equal size, row by row; return those that are to be drawn on.

    Panels have room for a title of two lines, and for names of so many letters on their left. The margins are fixed,
    which takes a third of a solved layout's time. The figure is one of `canvas(solved=False)`.
    """
    lines = ceil(number / columns)
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    share = (height - 0.95) / lines
    left = max(0.9, 0.15 + _LETTER * letters)
    figure.subplots_adjust(
        left=left / _WIDTH,
        right=1 - 0.28 / _WIDTH,
        bottom=0.5 / height,
        top=1 - 0.65 / height,
        wspace=0.34 if left == 0.9 else left * columns / (_WIDTH - 0.28 - columns * left),
        hspace=0.62 / max(share - 0.62, 0.3),
    )
    for axes in panels:
        axes.tick_params(labelsize=8)
        axes.locator_params(nbins=4)
    for axes in panels[number:]:
        axes.set_axis_off()
    return list(panels[:number])


def dots(
    axes: Axes, xs: Sequence[float], ys: Sequence[float], rows: Sequence[str], kind: str, size: float, label: str = ""
) -> None:
    """Draw a dot per row of a kind, each a link to the row of this name; `size` is its area in square points."""
    color, marker = COLORS[kind].light, MARKERS.get(kind, "o")
    drawn = axes.scatter(xs, ys, s=size, color=color, marker=marker, label=label or None, zorder=3, linewidths=0)
    drawn.set_urls([f"#{row}" for row in rows])


def plain_ticks(axes: Axes) -> None:
    """Label the ticks of two logarithmic axes with plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(NullFormatter())


def loss_ticks(axes: Axes) -> None:
    """Give an axis of losses logarithmic ticks in percent; the lowest stands for everything below LEAST_LOSS."""
    axes.set_yscale("log")
    least = f"≤{LEAST_LOSS:.2%}"

    def text(value: float, _: object = None) -> str:
        return least if value <= LEAST_LOSS * 1.01 else f"{value:.0%}" if value >= 0.01 else f"{value:.2%}"

    def between(value: float, _: object = None) -> str:
        low, high = axes.get_ylim()
        return text(value) if high < 10 * low and f"{value:e}"[0] in "235" else ""  # there may be no other tick

    axes.yaxis.set_major_formatter(text)
    axes.yaxis.set_minor_formatter(between)


def wrapped(name: str, width: int = 26) -> str:
    """Return a problem's name in lines of about `width` characters, broken before a colon or a dot if possible."""
    lines = [""]
    for piece in re.findall(rf"[:.]?[^:.]{{1,{width}}}|[:.]", name):
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def shortened(name: str, width: int = 26) -> str:
    """Return a problem's name in at most two lines of about `width` characters: of a longer one, head and tail.

    Digests of a kernel's source and types are left out.
    """
    name = re.sub(r"@[0-9a-f]{8,}(?=:)|~[0-9a-f]{8}$", "", name)
    lines = wrapped(name, width).split("\n")
    if len(lines) < 3:
        return "\n".join(lines)
    tail = re.search(rf"[:.][^:.].{{0,{width - 3}}}$", name[len(lines[0]) :])
    return f"{lines[0]}\n…{tail[0][1:] if tail else name[1 - width :]}"


def height_of(names: Sequence[str]) -> float:
    """Return the height of a canvas with a line per name, and its legend and axis, in inches."""
    return 1.0 + (0.11 + 0.16 * max(name.count("\n") + 1 for name in names)) * len(names)
