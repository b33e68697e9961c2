"""What `gemmtune explain --call` prints: the graphs of a callable, what cuts them, and the rows they hit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.problem import DType
from gemmtune.engine.records.table import RangeRow, Table
from gemmtune.engine.report.layout import table_text
from gemmtune.engine.report.ranges import range_row_record
from gemmtune.engine.tables.inductor.guards import Range, product_ranges
from gemmtune.engine.tables.inductor.products import Traced

__all__ = ["CallGraph", "call_graphs", "explain_call", "explain_call_record"]


@dataclass(frozen=True, slots=True)
class CallGraph:
    """One graph of a callable."""

    traced: Traced
    """What the model's own code makes of it."""
    range: Range
    """The m it serves, with what Inductor and the loader guard."""
    hits: dict[str, RangeRow]
    """The row of each product that has one."""

    @property
    def cut_by(self) -> list[str]:
        """What ends it: guards with the place that asks, or the model's own."""
        ends = [f"{guard.text} ({guard.product}, {guard.source.rpartition('/')[2]})" for guard in self.range.ends]
        own = self.range.last is not None and self.range.last == self.traced.last
        return [*(f"{guard} (the model's own)" for guard in self.traced.guards if own), *ends]


def call_graphs(
    traced: Sequence[Traced], dtype: DType, torch: str, device: Device, table: Table | None, *, shape_padding: bool
) -> list[CallGraph]:
    """Every graph, by m.

    Raises:
        UsageError: nothing is known of that torch's guards.
    """
    return list(_graphs(traced, dtype, torch, device, table.ranges if table else (), shape_padding))


def explain_call(name: str, torch: str, found: Sequence[CallGraph], width: int | None = None) -> str:
    """A line a graph; below, its products with the rows they run."""
    lines = [[_span(each.range), str(each.range.first), "; ".join(each.cut_by) or "-"] for each in found]
    products = dict.fromkeys(product for each in found for product in each.traced.products)
    rows = []
    for product in products:
        spans = [
            f"{_span(each.range)} {_runs(each, str(product))}" for each in found if product in each.traced.products
        ]
        rows.append([str(product), product.layout, ", ".join(spans)])
    return "\n\n".join(
        [
            f"{name}: torch {torch}, {len(found)} graphs",
            table_text(["m", "warm up", "ends with"], lines, ("m", "ends with"), width),
            table_text(["product", "layout", "runs"], rows, ("product", "layout", "runs"), width),
        ]
    )


def explain_call_record(torch: str, found: Sequence[CallGraph]) -> dict[str, object]:
    """The same for programs."""
    return {
        "torch": torch,
        "ranges": [[each.range.first, each.range.last] for each in found],
        "graphs": [
            {
                "first": each.range.first,
                "last": each.range.last,
                "warm_up": each.range.first,
                "guards": each.cut_by,
                "products": [str(product) for product in each.traced.products],
                "hits": {product: range_row_record(row) for product, row in each.hits.items()},
            }
            for each in found
        ],
    }


def _graphs(
    traced: Sequence[Traced],
    dtype: DType,
    torch: str,
    device: Device,
    rows: Sequence[RangeRow],
    shape_padding: bool,
) -> Iterator[CallGraph]:
    for each in traced:
        products = [product for product in (p.product for p in each.products) if product is not None]
        terms = {"shape_padding": shape_padding, "rows": rows}
        ranges = product_ranges(products, dtype, torch, device, **terms, first=each.first, end=each.last)  # type: ignore[arg-type]
        for found in ranges:
            yield CallGraph(each, found, dict(found.rows))


def _runs(graph: CallGraph, product: str) -> str:
    hit = next((row for name, row in graph.hits.items() if name.replace(" addmm(", " mm(") == _plain(product)), None)
    return hit.choice.space if hit else "aten"


def _plain(product: str) -> str:
    return product.replace(" addmm(", " mm(")


def _span(found: Range) -> str:
    if found.first == found.last:
        return str(found.first)
    return f"{found.first}–{'' if found.last is None else found.last}"
