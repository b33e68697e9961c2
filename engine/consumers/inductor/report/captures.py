"""Report of a capture: the products of a model and what no table can serve."""

from collections.abc import Mapping
from dataclasses import asdict

from gemmtune.engine.consumers.inductor.capture.captured import ROUTING, Captured, CapturedProduct
from gemmtune.engine.consumers.inductor.floor.shares import Floor, Kind
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.engine.report.layout import Grid, Report

_OF_FLOOR = "of floor"


def capture_report(captured: Captured, written: str) -> Report:
    """Return the report of a capture that was written to a campaign file."""
    variants = [variant for product in captured.products for variant in product.variants]
    floor = captured.floor
    shares = {(part.name, part.reason): part.share for part in floor.parts} if floor else {}
    sections: list[str | Grid] = [captured.source]
    if len(captured.calls) > 1:
        sections.append(calls_grid(captured))
    if variants:
        sections.append(products_grid(captured))
    if any(each.problem.kind == Grouped.kind for each in variants):
        sections.append(ROUTING)
    if captured.layers:
        sections.append(Grid({"layer": [each.name for each in captured.layers]}, ("layer",)))
    if not captured.problems:
        sections.append("It runs no product that a table can serve: no file is written.")
    if captured.unseen:
        sections.append(_unseen(captured, shares))
    if floor:
        sections.append("\n".join(floor_lines(floor)))
    if captured.problems:
        sections.append(f"written: {written}\nto tune: gemmtune tune {written} --out out")
    record = {
        "source": captured.source,
        "torch": captured.torch or None,
        "calls": [asdict(each) for each in captured.calls],
        "products": [
            {
                "problem": each.problem.name,
                "count": each.count,
                "compiled": captured.compiled.get(each.problem.name),
                "m": list(each.sizes),
                "m_expression": each.m or None,
                "first": each.first or None,
                "last": each.last,
                "epilogues": [{"epilogue": chain, "count": count} for chain, count in each.epilogues],
            }
            for each in variants
        ],
        "layers": captured.layers,
        "not_tuned": [{"operation": u.operation, "reason": u.reason, "count": u.count} for u in captured.unseen],
        "floor": floor and _floor_record(floor),
        "written": written if captured.problems else None,
    }
    return Report(record, sections)


def products_grid(captured: Captured) -> Grid:
    """Return a line per product to tune, with its runs, its sizes, and its share of the floor if that is known."""
    variants = [(variant, product) for product in captured.products for variant in product.variants]
    columns = {
        "product": [each.problem.series_name if each.m else each.problem.name for each, _ in variants],
        "runs": [f"{each.count:g}" for each, _ in variants],
    }
    if variants:
        named = variants[0][0].problem.range_size or "m"
        columns[named] = [_sizes(each, named) for each, _ in variants]
    if captured.floor:
        shares = {part.name: part.share for part in captured.floor.parts if not part.reason}
        columns[_OF_FLOOR] = [f"{shares[of.problem.name] * each.count / of.count:.1%}" for each, of in variants]
    chains = [", ".join(f"{text} ({count:g})" for text, count in each.epilogues) for each, _ in variants]
    columns |= {"epilogue without a text": chains} if any(chains) else {}
    return Grid(columns, ("product", "epilogue without a text"))


def plural(kind: Kind) -> str:
    """Return a kind of kernels in words for several."""
    return f"{kind.value}s" if kind in (Kind.PRODUCT, Kind.LIBRARY) else kind.value


def floor_lines(floor: Floor) -> list[str]:
    """Return what share of the least time each kind of kernel has, what rows can serve, and what is not known."""
    kinds = ", ".join(f"{plural(kind)} {share:.1%}" for kind, share in floor.by_kind.items())
    lines = [
        f"floor on {floor.device.name}, flops and bytes at its peak rates: {floor.total_ns / 1e3:.1f} µs; {kinds}",
        f"rows of a table can serve {floor.servable:.1%} of it",
    ]
    return [*lines, *(f"not known, and left out of the floor: {each}" for each in floor.unknown)]


def calls_grid(captured: Captured) -> Grid:
    """Return a line per call of the model, with its weight and what of it rows can serve."""
    calls = captured.calls
    columns = {
        "call": [each.name for each in calls],
        "weight": [f"{each.weight:g}" for each in calls],
        "products": [str(each.products) for each in calls],
        "runs": [f"{each.runs:g}" for each in calls],
    }
    if captured.floor:
        columns["floor µs"] = ["-" if each.floor_ns is None else f"{each.floor_ns / 1e3:.1f}" for each in calls]
        columns["servable"] = ["-" if each.servable is None else f"{each.servable:.1%}" for each in calls]
    return Grid(columns, ("call",))


def _unseen(captured: Captured, shares: Mapping[tuple[str, str], float]) -> Grid:
    ordered = sorted(captured.unseen, key=lambda each: -shares.get((each.operation, each.reason), 0))
    columns = {"not to be tuned": [each.operation for each in ordered], "runs": [f"{each.count:g}" for each in ordered]}
    if shares:
        columns[_OF_FLOOR] = [f"{shares[each.operation, each.reason]:.1%}" for each in ordered]
    columns["reason"] = [each.reason for each in ordered]
    return Grid(columns, ("not to be tuned", "reason"))


def _floor_record(floor: Floor) -> dict[str, object]:
    return {
        "device": floor.device.name,
        "total_ns": floor.total_ns,
        "servable": floor.servable,
        "by_kind": {kind.value: share for kind, share in floor.by_kind.items()},
        "unknown": floor.unknown,
        "parts": floor.parts,
    }


def _sizes(product: CapturedProduct, column: str) -> str:
    """Return the range size of a product, with its name where that is not the column's; a dash where it has none."""
    named = product.problem.range_size
    of = "" if named == column else f"{named} "
    if not product.m:
        return f"{of}{product.problem.size}" if named else "-"
    return f"{of}{product.first} to {'any' if product.last is None else product.last}"
