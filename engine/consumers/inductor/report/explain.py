"""Reports of `gemmtune show --graphs`: which m of a layer or a callable share a graph, and what cuts them."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gemmtune.engine.consumers.inductor.graphs.guards import Range, product_ranges, rows_of
from gemmtune.engine.consumers.inductor.graphs.layers import PADDED_DTYPES, Linear, layers_of
from gemmtune.engine.consumers.inductor.graphs.products import Traced, TracedProduct, dtype_of, dynamic_inputs, trace
from gemmtune.engine.io.importing import imported
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.gemm.terms import DType
from gemmtune.engine.records.table import RangeRow, Row, Table
from gemmtune.engine.report.layout import Grid, Report, json_fields, span
from gemmtune.engine.report.tables import range_row_json
from gemmtune.engine.seams.kinds import parse_workload
from gemmtune.engine.tables.table_file import require_device
from gemmtune.engine.toolchain.installed import require_extra
from gemmtune.engine.toolchain.releases import TORCH_VERSIONS, installed_torch, release_of


def graphs_report(
    of: str,
    inputs: Sequence[str],
    table: Table | None,
    device: str | None,
    torch: str | None,
    *,
    weight_grad: bool,
    input_grad: bool,
    shape_padding: bool,
) -> Report:
    """Report which m share a graph, and the rows that these use.

    Args:
        of: `all` layers of the table, a linear layer by its problem, or a model or function by MODULE:CALL.
        inputs: tensors of MODULE:CALL by their texts, one size of which is open.
        table: table whose rows are used.
        device: SKU of the GPU; by default the table's, else the H200.
        torch: version of torch; by default the installed one's.
        weight_grad: whether the weights need a gradient.
        input_grad: whether a layer's input needs a gradient.
        shape_padding: Inductor's setting.

    Raises:
        DeviceError: the table is for another GPU.
        ProblemError: a problem is malformed.
        ToolchainMissing: MODULE:CALL needs torch.
        UsageError: there is no such layer or callable, it fails, or the guards of that torch are not known.
    """
    target = catalogue.device(device) if device else table.device if table else catalogue.device("H200")
    if table is not None:
        require_device(table, target)
    version = torch or release_of(installed_torch() or TORCH_VERSIONS[-1])  # the newest whose guards are known
    if not (of == "all" or of[:1].isdecimal() or of.count(":") > 1):
        specs, size = dynamic_inputs(inputs)
        dtype = dtype_of(specs)
        traced = trace(_called(of), specs, size, grad=weight_grad)
        return explain_call(of, traced, dtype, version, target, table, shape_padding=shape_padding)
    if of == "all" and table is None:
        raise UsageError("--graphs all shows the layers of a table: name the table, a problem, or MODULE:CALL")
    workloads = [row.problem for row in table.rows] if table and of == "all" else [parse_workload(of)]
    layers = layers_of(workloads, weight_grad=weight_grad, input_grad=input_grad)
    if not layers and of != "all":
        raise UsageError(f"{of} is no linear layer's product: MxNxK:DTYPE:nt, DTYPE of {', '.join(PADDED_DTYPES)}")
    found = [explain_layer(each, version, target, table, shape_padding=shape_padding) for each in layers]
    reports = [layer.report() for layer in found]
    if of != "all":
        return reports[0]
    return Report({"layers": [each.to_json() for each in reports]}, [s for each in reports for s in each.sections])


def _called(path: str) -> Callable[..., object]:
    """Return a model without data, or a function, that is imported from this folder."""
    require_extra("triton", "tracing a callable", "torch")
    sys.path.insert(0, str(Path.cwd()))
    found = imported(path)
    import torch

    from gemmtune.engine.consumers.inductor.capture.calls import built_call

    with torch.device("meta"):
        return built_call(found, path, has_inputs=True)


@dataclass(frozen=True, slots=True)
class LayerGraphs:
    """Graphs of one linear layer on one GPU under one torch."""

    layer: Linear
    torch: str  # major and minor version
    device: Device
    ranges: tuple[Range, ...]  # ranges of m that share a graph
    unpadded: tuple[Range, ...]  # ranges of m that share a graph with `shape_padding=False`
    rows: tuple[Row, ...]  # rows of a table for one m each of the forward product
    spans: tuple[RangeRow, ...]  # ranges of a table for one m each of the forward product
    ranged: Mapping[str, Sequence[RangeRow]]  # ranges of a table for a dynamic m, by product of the layer

    def rows_in(self, found: Range) -> list[Row]:
        """Return the rows for one m each in a range; a graph for that m alone finds them."""
        return [row for row in self.rows if found.first <= row.problem.size <= (found.last or row.problem.size)]

    def spans_in(self, found: Range) -> list[RangeRow]:
        """Return the ranges for one m each, cut to a range."""
        cut = (replace(x, first=max(x.first, found.first), last=min(x.last, found.last or x.last)) for x in self.spans)
        return [each for each in cut if each.first <= each.last]

    def warm_up(self, found: Range) -> int:
        """Return the m to compile the range's graph with: that of its weightiest row, the greatest among equals."""
        problems = [row.problem for row in self.rows_in(found)]
        tuned = [(row.problem, m) for row in found.rows.values() for m, _ in row.tuned]
        sizes = [(p.weight, p.size) for p in problems] + [(p.weight, m) for p, m in tuned]
        inside = [(weight, m) for weight, m in sizes if found.first <= m <= (found.last or m)]
        return max(inside)[1] if inside else found.first

    def report(self) -> Report:
        """Report each range: what ends it, what runs there, and the m to warm up with.

        The record has `ranges` as [first, last], with null for the last of the endless range.
        """
        layer = self.layer
        gradients = [name for name, has in (("weight", layer.weight_grad), ("input", layer.input_grad)) if has]
        of = f"gradient of {' and '.join(gradients)}" if gradients else "no gradient"
        title = f"Linear {layer.inputs}→{layer.outputs}, {layer.dtype}, {of}: torch {self.torch}, {self.device.name}"
        guard = ("last", "asked", "product", "source")
        record = {
            "linear": json_fields(layer, "inputs", "outputs", "dtype"),
            "torch": self.torch,
            "device": self.device.sku,
            "ranges": [(each.first, each.last) for each in self.ranges],
            "guards": [{"guard": end.text, **json_fields(end, *guard)} for each in self.ranges for end in each.ends],
            "warm_up": [self.warm_up(each) for each in self.ranges],
            "rows": [[row.problem for row in self.rows_in(each)] for each in self.ranges],
            "spans": [[range_row_json(row) for row in self.spans_in(each)] for each in self.ranges],
            "hits": [{product: range_row_json(row) for product, row in each.rows.items()} for each in self.ranges],
        }
        return Report(record, [title, self._grid(), "\n".join(self._notes())])

    def _grid(self) -> Grid:
        ends = [each.ends[0] if each.ends else None for each in self.ranges]
        columns = {
            "m": [span(each.first, each.last) for each in self.ranges],
            "warm up": [str(self.warm_up(each)) for each in self.ranges],
        }
        if any(self.ranged.values()):
            columns["runs"] = [self._runs(each) for each in self.ranges]
        if self.rows:
            sizes = [[str(row.problem.size) for row in self.rows_in(each)] for each in self.ranges]
            spans = [[span(row.first, row.last) for row in self.spans_in(each)] for each in self.ranges]
            columns["rows at m ="] = [", ".join([*m, *spanned]) or "-" for m, spanned in zip(sizes, spans, strict=True)]
        columns["guard"] = [end.text if end else "-" for end in ends]
        columns["asked"] = [end.asked if end else "-" for end in ends]
        columns["of"] = [f"{end.product}, {end.source.rpartition('/')[2]}" if end else "-" for end in ends]
        return Grid(columns, [name for name in columns if name != "warm up"])

    def _runs(self, found: Range) -> str:
        """Return the space that runs each product in a range; the vendor library serves a product without a row."""
        return ", ".join(
            f"{product.partition(' mm')[0]} {found.rows[product].choice.space if product in found.rows else 'aten'}"
            for product in self.ranged
        )

    def _notes(self) -> list[str]:
        notes = ["m = 1 is compiled for itself, and so is the first m of all, unless it is marked dynamic"]
        if single := [str(each.first) for each in self.ranges if each.first == each.last]:
            marked = "mark_dynamic raises ConstraintViolationError there, maybe_mark_dynamic does not"
            notes.append(f"m = {', '.join(single)} gets a graph of its own: {marked}")
        if self.unpadded != self.ranges:
            left = ", ".join(span(each.first, each.last) for each in self.unpadded)
            notes.append(f"shape_padding=False, as gemmtune_inductor.options() has it, leaves {left}")
        if any(self.ranged.values()):
            notes.append(
                "the loader guards each range of a row; torch compiles torch._dynamo.config.recompile_limit graphs"
            )
        elif self.rows:
            notes.append(
                "a row for one m, or for each m of a range, serves a graph for that m alone; a dynamic m needs ranges: "
                "tune with dynamic_m"
            )
        return notes


def explain_layer(
    layer: Linear, torch: str, device: Device, table: Table | None, *, shape_padding: bool = True
) -> LayerGraphs:
    """Explain one layer; raises UsageError if the guards of that torch are not known."""
    ranged = table.ranges if table else ()
    products = tuple(layer.products())
    found, unpadded = (
        product_ranges(products, layer.dtype, torch, device, shape_padding=padding, rows=ranged)
        for padding in (shape_padding, False)
    )
    rows = tuple(row for row in table.rows if layer.has_forward(row.problem)) if table else ()
    static = tuple(row for row in rows if not row.problem.takes_size_at_launch)
    spans = tuple(x for x in ranged if layer.has_forward(x.problem) and not x.problem.takes_size_at_launch)
    return LayerGraphs(layer, torch, device, found, unpadded, static, spans, rows_of(products, layer.dtype, ranged))


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
    rows = table.ranges if table else ()
    graphs: list[tuple[Traced, Range]] = []
    for each in traced:
        products = [product.product for product in each.products if product.product is not None]
        found = product_ranges(
            products, dtype, torch, device, shape_padding=shape_padding, rows=rows, first=each.first, end=each.last
        )
        graphs += [(each, one) for one in found]
    ends = {
        "m": [span(found.first, found.last) for _, found in graphs],
        "warm up": [str(found.first) for _, found in graphs],
        "ends with": ["; ".join(_cut_by(each, found)) or "-" for each, found in graphs],
    }
    distinct = dict.fromkeys(product for each, _ in graphs for product in each.products)
    runs = {
        "product": [str(product) for product in distinct],
        "layout": [product.layout for product in distinct],
        "runs": [
            ", ".join(
                f"{span(found.first, found.last)} {_space_of(found, product) if rows else 'aten'}"
                for each, found in graphs
                if product in each.products
            )
            for product in distinct
        ],
    }
    record = {
        "torch": torch,
        "ranges": [(found.first, found.last) for _, found in graphs],
        "graphs": [
            {
                **json_fields(found, "first", "last"),
                "warm_up": found.first,
                "guards": _cut_by(each, found),
                "products": [str(product) for product in each.products],
                "hits": {product: range_row_json(row) for product, row in found.rows.items()},
            }
            for each, found in graphs
        ],
    }
    title = f"{name}: torch {torch}, {len(graphs)} graphs"
    return Report(record, [title, Grid(ends, ("m", "ends with")), Grid(runs, tuple(runs))])


def _cut_by(traced: Traced, found: Range) -> list[str]:
    """Return the guards that end a range, each with the place that asks, or as the model's own."""
    ends = [f"{guard.text} ({guard.product}, {guard.source.rpartition('/')[2]})" for guard in found.ends]
    own = found.last is not None and found.last == traced.last
    return [*(f"{guard} (the model's own)" for guard in traced.guards if own), *ends]


def _space_of(found: Range, product: TracedProduct) -> str:
    """Return the space that runs a product in a range, of which the vendor library serves one without a row."""
    row = found.rows.get(str(product).replace(" addmm(", " mm("))
    return row.choice.space if row else "aten" if product.product else "not known"
