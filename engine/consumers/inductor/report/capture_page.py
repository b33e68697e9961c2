"""Page of `gemmtune capture`: where the time of a model is, at least, and what of it a table can serve."""

from gemmtune.engine.consumers.inductor.capture.captured import Captured
from gemmtune.engine.consumers.inductor.floor.shares import Floor, Part
from gemmtune.engine.consumers.inductor.report.captures import calls_grid, plural, products_grid
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.html.page import Bar, Bars, Card, Page, Section, Sheet, Stack, legible, render, sheet_of
from gemmtune.engine.report.html.page import Part as Piece
from gemmtune.engine.report.layout import count

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
    runs = sum(product.count for product in captured.products)
    cards = [
        Card(f"{floor.total_ns / 1e3:,.1f} µs", f"floor of {count(max(len(captured.calls), 1), 'call')}, by weight"),
        Card(f"{floor.servable:.1%}", "of it in products that rows of a table can serve"),
        Card(str(len(captured.problems)), f"problems to tune, of {count(len(captured.products), 'product')}"),
        Card(f"{runs:g}", "runs of products, by weight"),
    ]
    text = "Each call of the model by itself; the figures above add them up by weight."
    calls = Section("Calls", text, sheet=sheet_of(calls_grid(captured))) if len(captured.calls) > 1 else None
    found = [_parts(floor), _products(captured), _unserved(floor), calls]
    title = f"gemmtune capture: {captured.source.removeprefix('Products of ').partition(',')[0]}"
    subtitle = f"{captured.source.removesuffix('.')} · torch {captured.torch}"
    return render(Page(title, subtitle, [section for section in found if section], cards))


def _parts(floor: Floor) -> Section:
    ids = {id(part): f"part-{place + 1}" for place, part in enumerate(floor.parts)}
    shown = [part for part in floor.parts if part.share]
    pieces = [Piece(part.name, part.share, _kind(part), ids[id(part)]) for part in shown]
    kinds = ", ".join(f"{plural(kind)} {share:.1%}" for kind, share in floor.by_kind.items() if share)
    longest = max((part.share for part in shown), default=1.0)
    bars = [_bar(part, longest, ids[id(part)]) for part in shown[:_MOST_BARS]]
    said = f" Green: a row of a table can serve it; grey: no row can. {kinds[:1].upper()}{kinds[1:]}."
    said += "".join(f" Not known, and left out: {each}." for each in floor.unknown)
    rows, left = [_row(part) for part in floor.parts], ("part", "kind", "why no row")
    sheet = Sheet(_HEADERS, rows, left, filterable=True, ids=list(ids.values()), tip=_HEADERS[1:])
    stack = Stack(f"The floor on {floor.device.name}", f"{floor.total_ns / 1e3:,.1f} µs", legible(pieces))
    return Section("Where the time is", _TEXT + said, sheet=sheet, bars=Bars([stack], bars))


def _bar(part: Part, longest: float, row: str) -> Bar:
    name = part.name.removeprefix("aten.").removesuffix(".default")
    return Bar(name, 0.0, part.share / longest, _kind(part), f"{part.share:.1%}", row)


def _products(captured: Captured) -> Section | None:
    grid = products_grid(captured)
    text = "What gemmtune tune takes: each distinct product, with its runs as weight."
    if captured.layers:
        text += f" Beside them, {count(len(captured.layers), 'problem')} of another kind."
    return Section("Products to tune", text, sheet=sheet_of(grid)) if captured.products else None


def _unserved(floor: Floor) -> Section | None:
    rows = [[part.name, f"{part.share:.1%}", part.reason] for part in floor.parts if part.reason]
    sheet = Sheet(("part", "of floor", "why no row"), rows, ("part", "why no row"))
    text = "By share, with the reason. The rest is what a table can serve."
    return Section("What no row can serve", text, sheet=sheet) if rows else None


def _kind(part: Part) -> str:
    return "tie" if part.reason else "win"


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
