"""Report, log and warnings of what a table does for the products of a program. Needs torch alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from gemmtune.engine.consumers.inductor.loader.biases import bias_of_product
from gemmtune.engine.consumers.inductor.loader.explain.table_use import (
    LIBRARY,
    ProductUse,
    TableUse,
    UseLog,
    problem_name,
)
from gemmtune.engine.consumers.inductor.loader.explain.warming import warmed_up
from gemmtune.engine.consumers.inductor.loader.grouped.grouped_products import GROUPED, grouped_product
from gemmtune.engine.consumers.inductor.loader.lowered import Counts

if TYPE_CHECKING:
    from gemmtune.engine.consumers.inductor.loader.loader_rows import ProductRow
    from gemmtune.engine.consumers.inductor.loader.lowered import LoweredProduct

__all__ = ["ProductNotes", "bias_of_product", "warmed_up"]

_NAMED = 3  # problems that a warning names
_OPEN = "; its size is open: tune several, with --ranges"
_RUNS = {"aten": "ATen runs", "autotune": "Inductor tunes it"}
_log = logging.getLogger("gemmtune")


class ProductNotes(Counts):
    """Notes of one table."""

    def __init__(self, device: str, miss: str, unused: str = "") -> None:
        """Begin without a note; arguments as those of `Counts`."""
        super().__init__(device, miss, unused)
        self._uses, self._elsewhere = UseLog(device, unused), f"; the table is for {device}"

    def see_graph(self, graph: Any) -> None:  # noqa: ANN401 (Inductor's GraphLowering)
        """Record the grouped products of a graph that is lowered now, of which the table has no row; warn of none."""
        for node in graph.module.graph.nodes:
            value = node.meta.get("val")
            if node.target in GROUPED and isinstance(value, torch.Tensor) and value.device.type == "cuda":
                found = grouped_product(node)
                if isinstance(found, str):
                    self.record("no problem", graph, f"{node.target}: {found}")
                else:
                    runs = _RUNS[self.miss] + _OPEN * (":dynamic" in found.key)
                    self.record("miss", None, f"{problem_name(found.key, found.hint)}: {runs}")

    def record(
        self,
        outcome: str,
        graph: Any,  # noqa: ANN401 (Inductor's GraphLowering)
        product: LoweredProduct | str,
        row: ProductRow | None = None,
        why: str = "",
        key: str = "",
        is_apart: bool = False,
    ) -> None:
        """Record and log a product that a graph has lowered; warn of misses after the lowering.

        Args:
            outcome: kind of use, see `ProductUse`.
            graph: graph that Inductor lowers; None for a product that no warning is to name.
            product: the product, or the operation and why no row describes it.
            row: row that serves it, if any.
            why: end of the detail.
            key: the row's key in the table.
            is_apart: whether an epilogue runs in a kernel of its own.
        """
        if isinstance(product, str):
            operation, _, reason = product.partition(": ")
            use = ProductUse(operation, outcome, reason)
        elif row is None:
            is_flex, runs = product.key.startswith("flex:"), _RUNS[self.miss] + _OPEN * (":dynamic" in product.key)
            runs = "Inductor's default runs" if is_flex else runs
            use = ProductUse(problem_name(product.full_key, product.hint), outcome, runs + why)
        else:
            size = "keys" if key.startswith("flex:") else "m"
            span = f" ({size} {row.first} to {row.last})" if row.first < row.last else ""
            detail = f"{problem_name(key, row.last)}{span} {row.template} {dict(row.kwargs) or ''}".rstrip() + why
            detail += _apart(product) if is_apart else ""
            use = ProductUse(problem_name(product.full_key, product.hint), outcome, detail)
        _log.info("%s", use)
        if self._uses.add(graph, use):
            self._warn_at_end(graph)

    def _warn_at_end(self, graph: Any) -> None:  # noqa: ANN401 (Inductor's GraphLowering)
        """Warn of misses after the lowering of a graph, whose last step in any torch is `finalize`."""
        finalize = getattr(graph, "finalize", None)
        if finalize is None:
            return

        def ended(*args: object, **kwargs: object) -> object:
            del graph.finalize
            result = finalize(*args, **kwargs)
            self._warn_of_misses(self._uses.end(graph))
            return result

        graph.finalize = ended

    def _warn_of_misses(self, uses: Sequence[ProductUse]) -> None:
        """Warn if no product of a graph has a row; a table of another GPU has its own warning, and so has a failure."""
        uses = [use for use in uses if not use.detail.startswith((LIBRARY, "it is empty"))]
        has_row = any(use.outcome not in ("miss", "no problem") for use in uses)
        elsewhere = any(use.detail.endswith(self._elsewhere) for use in uses)
        if not uses or has_row or elsewhere or self.report().count("failed"):
            return
        names = list(dict.fromkeys(use.problem for use in uses))
        named = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        reason = next((f"; {use.detail}" for use in uses if use.outcome != "miss"), "")
        head = "gemmtune's table has no row for any product of a graph"
        self.warn(f"{head}: {named}{reason}. See gemmtune_inductor.report()")

    def report(self) -> TableUse:
        """Return all uses up to now."""
        return self._uses.report()


def _apart(product: LoweredProduct) -> str:
    """Return a note that an epilogue runs in a kernel of its own; empty for a product without one."""
    if product.read.reason:
        return f", epilogue apart: {product.read.reason}"
    return ", epilogue apart" if product.full_key != product.key else ""
