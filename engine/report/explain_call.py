"""Report of `gemmtune explain --call`: the graphs of a callable, what cuts them, and the rows they find."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.problem import DType
from gemmtune.engine.records.table import RangeRow, Table
from gemmtune.engine.report.layout import Grid, Report, span
from gemmtune.engine.report.ranges import range_row_json
from gemmtune.engine.tables.inductor.guards import Range, product_ranges
from gemmtune.engine.tables.inductor.products import Traced

__all__ = ["explain_call"]


@dataclass(frozen=True, slots=True)
class _CallGraph:
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


def explain_call(
    name: str,
    traced: Sequence[Traced],
    dtype: DType,
    torch: str,
    device: Device,
    table: Table | None,
    *,
    shape_padding: bool,
) -> Report:
    """Report the graphs of a traced callable: what ends them, their products, and the rows these run.

    Raises:
        UsageError: the guards of that torch are not known.
    """
    graphs = list(_graphs(traced, dtype, torch, device, table.ranges if table else (), shape_padding))
    ends = {
        "m": [_span(each) for each in graphs],
        "warm up": [str(each.range.first) for each in graphs],
        "ends with": ["; ".join(each.cut_by) or "-" for each in graphs],
    }
    products = dict.fromkeys(product for each in graphs for product in each.traced.products)
    runs = {
        "product": [str(product) for product in products],
        "layout": [product.layout for product in products],
        "runs": [
            ", ".join(
                f"{_span(each)} {_space_of(each, str(product))}" for each in graphs if product in each.traced.products
            )
            for product in products
        ],
    }
    record = {
        "torch": torch,
        "ranges": [[each.range.first, each.range.last] for each in graphs],
        "graphs": [
            {
                "first": each.range.first,
                "last": each.range.last,
                "warm_up": each.range.first,
                "guards": each.cut_by,
                "products": [str(product) for product in each.traced.products],
                "hits": {product: range_row_json(row) for product, row in each.range.rows.items()},
            }
            for each in graphs
        ],
    }
    title = f"{name}: torch {torch}, {len(graphs)} graphs"
    return Report(record, [title, Grid(ends, ("m", "ends with")), Grid(runs, tuple(runs))])


def _graphs(
    traced: Sequence[Traced],
    dtype: DType,
    torch: str,
    device: Device,
    rows: Sequence[RangeRow],
    shape_padding: bool,
) -> Iterator[_CallGraph]:
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
            yield _CallGraph(each, found)


def _space_of(graph: _CallGraph, product: str) -> str:
    """Return the space that runs a product in a graph; the vendor library serves a product without a row."""
    hits = (row.choice.space for name, row in graph.range.rows.items() if _as_mm(name) == _as_mm(product))
    return next(hits, "aten")


def _as_mm(product: str) -> str:
    return product.replace(" addmm(", " mm(")


def _span(graph: _CallGraph) -> str:
    return span(graph.range.first, graph.range.last)
