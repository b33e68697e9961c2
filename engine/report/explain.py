"""What `gemmtune explain` prints: which m of a linear layer share a graph, what cuts them, and what to warm up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.problem import Layout, Op, Problem
from gemmtune.engine.records.table import RangeRow, Row, Table
from gemmtune.engine.report.layout import table_text
from gemmtune.engine.report.ranges import range_row_record
from gemmtune.engine.tables.inductor.guards import TORCH_VERSIONS, Guard, Range, ranges, rows_of
from gemmtune.engine.tables.inductor.layers import PADDED_DTYPES, Linear

__all__ = ["Explanation", "explain", "explain_record", "explanation", "installed_torch", "layers_of"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """One layer on one GPU under one torch."""

    layer: Linear
    """The layer."""
    torch: str
    """Major and minor version."""
    device: Device
    """The GPU."""
    ranges: tuple[Range, ...]
    """Sizes that share a graph."""
    unpadded: tuple[Range, ...]
    """The same with `shape_padding=False`."""
    rows: tuple[Row, ...]
    """A table's rows of the forward product for one m each; none without a table."""
    ranged: Mapping[str, Sequence[RangeRow]]
    """A table's ranges of a dynamic m, by product of the layer."""

    def hits(self, found: Range) -> dict[str, RangeRow]:
        """The range's row for each product that has one: the loader guards that there is one."""
        return dict(found.rows)

    def alone_in(self, found: Range) -> list[Row]:
        """The rows for one m each, which a graph for that m alone finds."""
        return [row for row in self.rows if found.first <= row.problem.m <= (found.last or row.problem.m)]

    def warm_up(self, found: Range) -> int:
        """The m to compile the range's graph with: that of its weightiest row, the greatest among equals."""
        problems = [row.problem for row in self.alone_in(found)]
        tuned = [(row.problem, m) for row in self.hits(found).values() for m, _ in row.tuned]
        sizes = [(p.weight, p.m) for p in problems] + [(p.weight, m) for p, m in tuned]
        inside = [(weight, m) for weight, m in sizes if found.first <= m <= (found.last or m)]
        return max(inside)[1] if inside else found.first


def explanation(
    layer: Linear, torch: str, device: Device, table: Table | None, *, shape_padding: bool = True
) -> Explanation:
    """Explain one layer.

    Raises:
        UsageError: nothing is known of that torch.
    """
    ranged = table.ranges if table else ()
    found = ranges(layer, torch, device, shape_padding=shape_padding, rows=ranged)
    unpadded = ranges(layer, torch, device, shape_padding=False, rows=ranged)
    rows = tuple(row for row in table.rows if _is_forward_of(layer, row.problem)) if table else ()
    alone = tuple(row for row in rows if not row.problem.dynamic_m)
    return Explanation(layer, torch, device, found, unpadded, alone, rows_of(layer, ranged))


def installed_torch() -> str:
    """Major and minor version of the torch that is installed; without one, the newest whose guards are known."""
    try:
        return ".".join(metadata.version("torch").split(".")[:2])
    except metadata.PackageNotFoundError:
        return TORCH_VERSIONS[-1]


def layers_of(table: Table, *, weight_grad: bool, input_grad: bool) -> tuple[Linear, ...]:
    """The layers whose forward products a table has, in its order."""
    forward = (row.problem for row in table.rows if row.problem.a_dtype in PADDED_DTYPES)
    layers = (Linear(p.k, p.n, p.a_dtype, weight_grad, input_grad) for p in forward)
    return tuple(dict.fromkeys(x for x in layers if any(_is_forward_of(x, row.problem) for row in table.rows)))


def explain(found: Explanation, width: int | None = None) -> str:
    """A line a range, and below what the ranges do not tell."""
    layer = found.layer
    gradients = [name for name, has in (("weight", layer.weight_grad), ("input", layer.input_grad)) if has]
    of = f"gradient of {' and '.join(gradients)}" if gradients else "no gradient"
    title = f"Linear {layer.inputs}→{layer.outputs}, {layer.dtype}, {of}: torch {found.torch}, {found.device.name}"
    with_ranges = any(found.ranged.values())
    columns = ["m", "warm up", *(["runs"] if with_ranges else []), *(["rows at m ="] if found.rows else [])]
    columns += ["guard", "asked", "of"]
    lines = []
    for each in found.ranges:
        ends = each.ends
        rows = [_hits(found, each)] if with_ranges else []
        rows += [", ".join(str(row.problem.m) for row in found.alone_in(each)) or "-"] if found.rows else []
        asked = [ends[0].text, ends[0].asked, f"{ends[0].product}, {_place(ends[0])}"] if ends else ["-", "-", "-"]
        lines.append([_span(each), str(found.warm_up(each)), *rows, *asked])
    return "\n".join([title, "", table_text(columns, lines, ("m", *columns[2:]), width), "", *_notes(found)])


def explain_record(found: Explanation) -> dict[str, object]:
    """The same for programs: `ranges` as [first, last], the last one without end as [first, null]."""
    return {
        "linear": {"inputs": found.layer.inputs, "outputs": found.layer.outputs, "dtype": found.layer.dtype.value},
        "torch": found.torch,
        "device": found.device.sku,
        "ranges": [[each.first, each.last] for each in found.ranges],
        "guards": [
            {
                "guard": guard.text,
                "last": guard.last,
                "asked": guard.asked,
                "product": guard.product,
                "source": guard.source,
            }
            for each in found.ranges
            for guard in each.ends
        ],
        "warm_up": [found.warm_up(each) for each in found.ranges],
        "rows": [[row.problem.name for row in found.alone_in(each)] for each in found.ranges],
        "hits": [
            {product: range_row_record(row) for product, row in found.hits(each).items()} for each in found.ranges
        ],
    }


def _notes(found: Explanation) -> list[str]:
    notes = ["m = 1 is compiled for itself, and so is the first m of all, unless it is marked dynamic"]
    if alone := [str(each.first) for each in found.ranges if each.first == each.last]:
        marked = "mark_dynamic raises ConstraintViolationError there, maybe_mark_dynamic does not"
        notes.append(f"m = {', '.join(alone)} gets a graph of its own: {marked}")
    if found.unpadded != found.ranges:
        left = ", ".join(_span(each) for each in found.unpadded)
        notes.append(f"shape_padding=False, as gemmtune_inductor.options() has it, leaves {left}")
    if any(found.ranged.values()):
        notes.append(
            "the loader guards each range of a row; torch compiles torch._dynamo.config.recompile_limit graphs"
        )
    elif found.rows:
        notes.append("a row for one m serves a graph for that m alone; a dynamic m needs ranges: tune with dynamic_m")
    return notes


def _hits(found: Explanation, each: Range) -> str:
    """What runs in the range: the space of each product's row, the library where there is none."""
    hits = found.hits(each)
    return ", ".join(
        f"{product.partition(' mm')[0]} {hits[product].choice.space if product in hits else 'aten'}"
        for product in found.ranged
    )


def _is_forward_of(layer: Linear, problem: Problem) -> bool:
    return (
        problem.op in (Op.MM, Op.ADDMM)
        and (problem.k, problem.n, problem.a_layout, problem.b_layout)
        == (layer.inputs, layer.outputs, Layout.N, Layout.T)
        and problem.a_dtype == problem.b_dtype == problem.out_dtype == layer.dtype
    )


def _span(found: Range) -> str:
    if found.first == found.last:
        return str(found.first)
    return f"{found.first}–{'' if found.last is None else found.last}"


def _place(guard: Guard) -> str:
    return guard.source.rpartition("/")[2]
