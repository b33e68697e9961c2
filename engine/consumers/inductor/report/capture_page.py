"""Page of `gemmtune capture`: where the time of a model is, at least, and what of it a table can serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmtune.engine.consumers.inductor.capture.captured import Captured
from gemmtune.engine.consumers.inductor.floor.shares import Floor, Part
from gemmtune.engine.consumers.inductor.report.captures import plural
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.html.drawing import COLORS, Picture, height_of, wrapped
from gemmtune.engine.report.html.page import Card, Page, Section, Sheet, render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_BARS = 12
_HEADERS = ("part", "kind", "runs", "GFLOP", "MB", "floor µs", "of floor", "why no row")
_TEXT = (
    "The floor is the least time that the kernels can take: of each launch the longer of its flops at the peak rate of "
    "the data sheet and its bytes at the bandwidth, one launch after the other. A product counts without what can be "
    "fused behind it. Everything else is what Inductor writes itself; at best, all that is connected between two "
    "products is one kernel, which moves each tensor once."
)


def capture_html(captured: Captured) -> str:
    """Return the page of a capture; equal captures give equal text.

    Raises:
        UsageError: the capture is a recorded program's, of which no device is known.
    """
    floor = captured.floor
    if floor is None:
        raise UsageError("a recorded program has no sizes of its other kernels: capture the model to see its floor")
    cards = [
        Card(f"{floor.total_ns / 1e3:,.1f} µs", "floor of all calls by their weights"),
        Card(f"{floor.servable:.1%}", "of it in products that rows of a table can serve"),
        *(Card(f"{share:.1%}", plural(kind)) for kind, share in floor.by_kind.items() if share),
    ]
    sections = [_parts(floor), _unserved(floor), *([_calls(captured)] if len(captured.calls) > 1 else [])]
    title = f"gemmtune capture: {captured.source.removeprefix('Products of ').partition(',')[0]}"
    subtitle = f"{captured.source} · torch {captured.torch}"
    return render(Page(title, subtitle, sections, cards))


def _parts(floor: Floor) -> Section:
    shown = [part for part in floor.parts if part.share][:_MOST_BARS]
    names = [wrapped(part.name.removeprefix("aten.").removesuffix(".default")) for part in shown]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for reasoned, kind, meaning in ((False, "win", "a row can serve it"), (True, "tie", "no row can")):
            of = [(-at, 100 * part.share) for at, part in enumerate(shown) if bool(part.reason) == reasoned]
            if of:
                axes.barh(*zip(*of, strict=True), color=COLORS[kind].light, label=meaning)
        axes.set_yticks([-at for at in range(len(shown))], names)
        axes.set_xlabel("% of the floor")
        figure.legend(loc="outside upper left", ncols=2)

    label = f"Share of the floor of the {len(shown)} largest parts"
    pictures = [Picture(label, height_of(names), draw)] if shown else []
    unknown = "".join(f" Not known, and left out: {each}." for each in floor.unknown)
    sheet = Sheet(_HEADERS, [_row(part) for part in floor.parts], ("part", "kind", "why no row"), filterable=True)
    return Section("Where the time is", _TEXT + unknown, pictures, sheet)


def _unserved(floor: Floor) -> Section:
    rows = [[f"{part.share:.1%}", part.name, part.reason] for part in floor.parts if part.reason]
    sheet = Sheet(("of floor", "part", "why no row"), rows, ("part", "why no row"))
    return Section(
        "What no row can serve", "By share, with the reason. The rest is what a table can serve.", sheet=sheet
    )


def _calls(captured: Captured) -> Section:
    rows = [
        [
            call.name,
            f"{call.weight:g}",
            str(call.products),
            f"{call.runs:g}",
            "-" if call.floor_ns is None else f"{call.floor_ns / 1e3:.1f}",
            "-" if call.servable is None else f"{call.servable:.1%}",
        ]
        for call in captured.calls
    ]
    headers = ("call", "weight", "products", "runs", "floor µs", "servable")
    return Section(
        "Calls",
        "Each call of the model by itself; the figures above add them up by weight.",
        sheet=Sheet(headers, rows, ("call",)),
    )


def _row(part: Part) -> list[str]:
    return [
        part.name,
        part.kind.value,
        f"{part.runs:g}",
        "not known" if part.flops is None else f"{part.flops / 1e9:.2f}",
        f"{part.bytes / 1e6:.2f}",
        f"{part.floor_ns / 1e3:.2f}",
        f"{part.share:.1%}",
        part.reason or "-",
    ]
