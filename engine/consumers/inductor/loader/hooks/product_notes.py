"""Record of what a table does for the products of a graph: for the log, the report and warnings. Needs torch alone."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._inductor.virtualized import V

from gemmtune.engine.consumers.inductor.loader.boundary import nothing, or_else
from gemmtune.engine.consumers.inductor.loader.loader_rows import InductorTable, ProductRow
from gemmtune.engine.consumers.inductor.loader.lowered import LoweredProduct, root_of
from gemmtune.engine.consumers.inductor.loader.table_use import LIBRARY, ProductUse, UseLog, problem_name

_NAMED = 3  # problems that a warning names
_log = logging.getLogger("gemmtune")


class ProductNotes:
    """Notes of one table."""

    def __init__(self, table: InductorTable, policy: str, miss: str, rows: Mapping[str, Sequence[ProductRow]]) -> None:
        """Begin without a note; `rows` may apply, by key, and `install` documents the rest."""
        self._table, self._policy, self._miss, self._rows = table, policy, miss, rows
        self._elsewhere = f"; the table is for {table.device}"
        self._messages: set[str] = set()
        self.uses = UseLog(table.device)

    @or_else(nothing)
    def see_graph(self, graph: Any) -> None:  # noqa: ANN401 (Inductor's GraphLowering)
        """Record the grouped products of a graph that is lowered now: Inductor asks no handler of choices for them."""
        for node in graph.module.graph.nodes:
            value = node.meta.get("val")
            if "grouped_mm" in str(node.target) and isinstance(value, torch.Tensor) and value.device.type == "cuda":
                shapes = [getattr(each.meta.get("val"), "shape", ()) for each in node.all_input_nodes[:2]]
                sizes = " by ".join("x".join(map(str, shape)) for shape in shapes)
                self._add(root_of(graph), ProductUse(str(node.target), "no problem", f"{LIBRARY}, {sizes}"))

    def is_of_epilogue(self, product: LoweredProduct, row: ProductRow) -> bool:
        """Return whether a row was timed with the product's epilogue; a plain product has none."""
        rows = self._rows.get(product.full_key, ())
        return product.full_key != product.key and any(row in (each, each.otherwise) for each in rows)

    @or_else(nothing)
    def record(
        self, product: LoweredProduct | str, row: ProductRow | None, device: torch.device, outcome: str, why: str = ""
    ) -> None:
        """Record and log a product that was lowered, or the operation and why no row describes it."""
        if isinstance(product, str):
            operation, _, reason = product.partition(": ")
            use = ProductUse(operation, "no problem", reason)
        elif row is None:
            runs = "ATen runs" if self._miss == "aten" else "Inductor tunes it"
            if self._policy != "ignore" and torch.cuda.get_device_properties(device).name != self._table.device:
                runs += self._elsewhere
            use = ProductUse(problem_name(product.full_key, product.hint), outcome, runs)
        else:
            key = product.full_key if self.is_of_epilogue(product, row) else product.key
            span = f" (m {row.first} to {row.last})" if row.first < row.last else ""
            row_name = problem_name(key, row.last) + span
            detail = f"{row_name} {row.template} {dict(row.kwargs) or ''}".rstrip() + why
            use = ProductUse(problem_name(product.full_key, product.hint), outcome, detail)
        if product:
            self._add(root_of(V.graph), use)

    def _add(self, graph: Any, use: ProductUse) -> None:  # noqa: ANN401 (Inductor's GraphLowering)
        """Note a product of a graph; warn of misses after the lowering, whose last step in any torch is `finalize`."""
        finalize = getattr(graph, "finalize", None)
        if not self.note(graph, use) or finalize is None:
            return

        def ended(*args: object, **kwargs: object) -> object:
            del graph.finalize
            result = finalize(*args, **kwargs)
            self._warn_of_misses(self.uses.end(graph))
            return result

        graph.finalize = ended

    def note(self, graph: object, use: ProductUse) -> bool:
        """Log and count a product; return whether it is the first one of a graph."""
        _log.info("%s", use)
        return self.uses.add(graph, use)

    @or_else(nothing)
    def _warn_of_misses(self, uses: Sequence[ProductUse]) -> None:
        """Warn if no product of a graph has a row; a table of another GPU has its own warning, and so has a failure."""
        uses = [use for use in uses if not use.detail.startswith(LIBRARY)]
        has_row = any(use.outcome not in ("miss", "no problem") for use in uses)
        elsewhere = any(use.detail.endswith(self._elsewhere) for use in uses)
        if not uses or has_row or elsewhere or self.uses.report().count("failed"):
            return
        names = list(dict.fromkeys(use.problem for use in uses))
        named = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        reason = next((f"; {use.detail}" for use in uses if use.outcome != "miss"), "")
        head = "gemmtune's table has no row for any product of a graph"
        self.warn(f"{head}: {named}{reason}. See gemmtune_inductor.report()")

    def warn(self, message: str) -> None:
        """Warn, unless this table has said it."""
        if message not in self._messages:
            self._messages.add(message)
            warnings.warn(message, stacklevel=2)


def apart(product: LoweredProduct) -> str:
    """Return a note that an epilogue runs in a kernel of its own; empty for a product without one."""
    if product.read.reason:
        return f", epilogue apart: {product.read.reason}"
    return ", epilogue apart" if product.read.epilogue else ""
