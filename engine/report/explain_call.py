"""Report of `gemmtune explain --call`: the graphs of a callable, what cuts them, and the rows they find."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.problem import DType
from gemmtune.engine.records.table import RangeRow, Table
from gemmtune.engine.report.layout import span, table_text
from gemmtune.engine.report.ranges import range_row_json
from gemmtune.engine.tables.inductor.guards import Range, product_ranges
from gemmtune.engine.tables.inductor.products import Traced

__all__ = ["CallGraph", "CallReport", "explain_call"]


@dataclass(frozen=True, slots=True)
class CallGraph:
    """One graph of a callable."""

    traced: Traced
    """Products and guards of the model's own code."""
    range: Range
    """Range of m that the graph serves, with the guards of Inductor and the loader."""

    @property
    def cut_by(self) -> list[str]:
        """Guards that end the range, each with the place that asks, or as the model's own."""
        ends = [f"{guard.text} ({guard.product}, {guard.source.rpartition('/')[2]})" for guard in self.range.ends]
        own = self.range.last is not None and self.range.last == self.traced.last
        return [*(f"{guard} (the model's own)" for guard in self.traced.guards if own), *ends]


@dataclass(frozen=True, slots=True)
class CallReport:
    """Graphs of one callable."""

    name: str
    """Import path of the callable."""
    torch: str
    """Major and minor version of torch."""
    graphs: Sequence[CallGraph]
    """Graphs in the order of m."""

    def to_text(self, width: int | None = None) -> str:
        """Return a line per graph, then its products with the rows they run."""
        lines = [[_span(each), str(each.range.first), "; ".join(each.cut_by) or "-"] for each in self.graphs]
        rows = []
        for product in dict.fromkeys(product for each in self.graphs for product in each.traced.products):
            serving = [each for each in self.graphs if product in each.traced.products]
            runs = ", ".join(f"{_span(each)} {_space_of(each, str(product))}" for each in serving)
            rows.append([str(product), product.layout, runs])
        return "\n\n".join(
            [
                f"{self.name}: torch {self.torch}, {len(self.graphs)} graphs",
                table_text(["m", "warm up", "ends with"], lines, ("m", "ends with"), width),
                table_text(["product", "layout", "runs"], rows, ("product", "layout", "runs"), width),
            ]
        )

    def to_json(self) -> dict[str, object]:
        """Return the object for programs."""
        return {
            "torch": self.torch,
            "ranges": [[each.range.first, each.range.last] for each in self.graphs],
            "graphs": [
                {
                    "first": each.range.first,
                    "last": each.range.last,
                    "warm_up": each.range.first,
                    "guards": each.cut_by,
                    "products": [str(product) for product in each.traced.products],
                    "hits": {product: range_row_json(row) for product, row in each.range.rows.items()},
                }
                for each in self.graphs
            ],
        }


def explain_call(
    name: str,
    traced: Sequence[Traced],
    dtype: DType,
    torch: str,
    device: Device,
    table: Table | None,
    *,
    shape_padding: bool,
) -> CallReport:
    """Explain the graphs of a traced callable.

    Raises:
        UsageError: the guards of that torch are not known.
    """
    rows = table.ranges if table else ()
    return CallReport(name, torch, list(_graphs(traced, dtype, torch, device, rows, shape_padding)))


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
        for found in product_ranges(
            products,
            dtype,
            torch,
            device,
            shape_padding=shape_padding,
            rows=rows,
            first=each.first,
            end=each.last,
        ):
            yield CallGraph(each, found)


def _space_of(graph: CallGraph, product: str) -> str:
    """Return the space that runs a product in a graph; the vendor library serves a product without a row."""
    hits = (row.choice.space for name, row in graph.range.rows.items() if _as_mm(name) == _as_mm(product))
    return next(hits, "aten")


def _as_mm(product: str) -> str:
    return product.replace(" addmm(", " mm(")


def _span(graph: CallGraph) -> str:
    return span(graph.range.first, graph.range.last)
