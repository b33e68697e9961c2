"""What `gemmtune explain` prints: which m of a linear layer share a graph, what cuts them, and what to warm up."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.problem import Layout, Op
from gemmtune.engine.records.table import Row, Table
from gemmtune.engine.report.layout import table_text
from gemmtune.engine.tables.inductor_guards import PADDED_DTYPES, TORCH_VERSIONS, Guard, Linear, Range, ranges

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
    """A table's rows of the forward product; none without a table."""

    def rows_in(self, found: Range) -> list[Row]:
        """The rows whose m a graph of that range may have been compiled with."""
        return [row for row in self.rows if found.first <= row.problem.m <= (found.last or row.problem.m)]

    def warm_up(self, found: Range) -> int:
        """The m to compile the range's graph with: that of its weightiest row, the greatest among equals.

        Inductor looks a product up by the sizes it sees first, so a graph has the row of the m it was compiled with.
        """
        weights = [(row.problem.weight, row.problem.m) for row in self.rows_in(found)]
        return max(weights)[1] if weights else found.first


def explanation(
    layer: Linear, torch: str, device: Device, table: Table | None, *, shape_padding: bool = True
) -> Explanation:
    """Explain one layer.

    Raises:
        UsageError: nothing is known of that torch.
    """
    found = ranges(layer, torch, device, shape_padding=shape_padding)
    rows = () if table is None else tuple(row for row in table.rows if _is_forward_of(layer, row))
    return Explanation(layer, torch, device, found, ranges(layer, torch, device, shape_padding=False), rows)


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
    return tuple(dict.fromkeys(x for x in layers if any(_is_forward_of(x, row) for row in table.rows)))


def explain(found: Explanation, width: int | None = None) -> str:
    """A line a range, and below what the ranges do not tell."""
    layer = found.layer
    gradients = [name for name, has in (("weight", layer.weight_grad), ("input", layer.input_grad)) if has]
    of = f"gradient of {' and '.join(gradients)}" if gradients else "no gradient"
    title = f"Linear {layer.inputs}→{layer.outputs}, {layer.dtype}, {of}: torch {found.torch}, {found.device.name}"
    columns = ["m", "warm up", *(["rows at m ="] if found.rows else []), "guard", "asked", "of"]
    lines = []
    for each in found.ranges:
        ends = each.ends
        rows = [", ".join(str(row.problem.m) for row in found.rows_in(each)) or "-"] if found.rows else []
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
        "rows": [[row.problem.name for row in found.rows_in(each)] for each in found.ranges],
    }


def _notes(found: Explanation) -> list[str]:
    notes = ["m = 1 is compiled for itself, and so is the first m of all, unless it is marked dynamic"]
    if alone := [str(each.first) for each in found.ranges if each.first == each.last]:
        marked = "mark_dynamic raises ConstraintViolationError there, maybe_mark_dynamic does not"
        notes.append(f"m = {', '.join(alone)} gets a graph of its own: {marked}")
    if found.unpadded != found.ranges:
        left = ", ".join(_span(each) for each in found.unpadded)
        notes.append(f"shape_padding=False, as gemmtune_inductor.options() has it, leaves {left}")
    if found.rows:
        notes.append("a graph runs the row of the m it was compiled with, and any other m of its range on it too")
    return notes


def _is_forward_of(layer: Linear, row: Row) -> bool:
    problem = row.problem
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
