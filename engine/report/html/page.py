"""Render a page of sections as one HTML file that loads nothing else."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import fsum

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from gemmtune.engine.io.printing import visible
from gemmtune.engine.report.html.drawing import COLORS, Picture
from gemmtune.engine.report.layout import Grid, count

_ROOM = 0.07  # share of a stack in which a percentage has room
_THIN = 0.004  # share of a stack below which parts are one


@dataclass(frozen=True, slots=True)
class Link:
    """Text of a cell that leads somewhere."""

    text: str
    """Words that a reader clicks."""
    href: str
    """Address beside the page, or a place on it."""


Cell = str | tuple[str, float] | Link
"""Text of a cell; with a number, which sorts the column, where the text is no number; or a link."""


@dataclass(frozen=True, slots=True)
class Card:
    """One figure of a headline."""

    value: str
    """The figure with its unit."""
    meaning: str
    """Short sentence that says what the figure is."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """Table of numbers and texts: a header per column, and a cell of each column per row."""

    headers: Sequence[str]
    """Header of each column."""
    rows: Sequence[Sequence[Cell]]
    """Cells of each row, one per header."""
    left: Sequence[str] = ()
    """Headers of the columns that are left-aligned."""
    kinds: Sequence[str] = ()
    """Class of each row's first cell: win, tie or loss; empty for none."""
    filterable: bool = False
    """Whether the page offers a field that filters the rows."""
    ids: Sequence[str] = ()
    """Name of each row in links, unique on the page; empty where nothing leads to them."""
    tip: Sequence[str] = ()
    """Headers of the columns that a mark shows, when pointed at, beside the first column."""


@dataclass(frozen=True, slots=True)
class Part:
    """Part of a stacked bar."""

    name: str
    """Words for what the part is."""
    share: float
    """Width as a fraction of the page's widest stack."""
    kind: str
    """Class of the colour: win, tie, loss, was or saved."""
    row: str = ""
    """Name of the row that it leads to; empty for none."""
    text: str = ""
    """Words inside the part; empty where it is too narrow."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Stacked bar with a title."""

    name: str
    """Words on its left."""
    text: str
    """Figure on its right."""
    parts: Sequence[Part]
    """Parts from left to right."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Bar with a mark that it is compared with."""

    name: str
    """Words on its left."""
    whole: float
    """Place of the mark, as a fraction of the picture's width; 0 for none."""
    part: float
    """Length of the bar, in the same unit."""
    kind: str
    """Class of the bar's colour: win, tie, loss or accent."""
    text: str
    """Figure on its right."""
    row: str = ""
    """Name of the row that it leads to; empty for none."""


@dataclass(frozen=True, slots=True)
class Bars:
    """Stacked bars, and bars below them, which the page draws itself."""

    stacks: Sequence[Stack]
    """Stacked bars on one scale."""
    bars: Sequence[Bar]
    """Bars on one scale."""


@dataclass(frozen=True, slots=True)
class Section:
    """One heading of a page, with pictures, the numbers behind them, or a text to copy."""

    title: str
    """Heading of the section."""
    text: str
    """Sentences that tell how to read the section, or why it is empty."""
    pictures: Sequence[Picture] = ()
    """Pictures, drawn when the page is rendered."""
    sheet: Sheet | None = None
    """Numbers behind the pictures, folded where there is a picture."""
    code: str = ""
    """Text that a reader copies."""
    fold: str = ""
    """Words that unfold the numbers; empty for `Numbers` below a picture, and for numbers that stand open."""
    bars: Bars | None = None
    """Bars, above the pictures."""

    @property
    def anchor(self) -> str:
        """Name of the section in links: lower-case words joined by hyphens."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


@dataclass(frozen=True, slots=True)
class Page:
    """A report before it is rendered."""

    title: str
    """Title of the page and of its tab."""
    subtitle: str
    """Line below the title: device, versions, date."""
    sections: Sequence[Section]
    """Sections in reading order."""
    cards: Sequence[Card] = ()
    """Figures of the headline."""
    sources: str = ""
    """Hash of what the page was made from; empty where nobody asks."""
    links: Sequence[Link] = ()
    """Other pages, named beside the sections."""
    refresh: float = 0.0
    """Seconds after which the page asks its server for what is new; 0 for a page that stays as it is."""


def legible(parts: Sequence[Part]) -> list[Part]:
    """Return the parts with a percentage of their stack where there is room; those too thin to see become one."""
    whole = fsum(part.share for part in parts)
    seen = [
        Part(p.name, p.share, p.kind, p.row, f"{p.share / whole:.0%}" if p.share >= _ROOM else "")
        for p in parts
        if p.share >= _THIN
    ]
    rest = whole - fsum(part.share for part in seen)
    hidden = len(parts) - len(seen)
    return [*seen, Part(count(hidden, "smaller problem"), rest, parts[-1].kind)] if hidden else seen


def sheet_of(grid: Grid) -> Sheet:
    """Return a table of text as a table of the page."""
    return Sheet(list(grid.columns), list(zip(*grid.columns.values(), strict=True)), grid.left)


def render(page: Page) -> str:
    """Return the page as HTML text; names from outside are escaped, and so are control characters.

    The text holds style, script and pictures. It loads nothing, so that it opens from a disk and from an e-mail.
    """
    return visible(_template().render(page=page, colors=COLORS)) + "\n"


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.loader = FunctionLoader(lambda name: files(__package__).joinpath(name).read_text(encoding="utf-8"))
    return environment.get_template("page.html")
