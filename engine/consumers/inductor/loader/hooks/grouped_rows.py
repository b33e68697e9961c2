"""Rows of grouped products, for which Inductor asks no handler of choices: their lowerings are replaced.

A row's binary or ATen is the one kernel that Inductor gets, so nothing is benchmarked. Needs torch alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor import config
from torch._inductor.ir import ExternKernel, FixedLayout
from torch._inductor.lowering import lowerings
from torch._inductor.utils import convert_shape_to_inductor
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from gemmtune.engine.consumers.inductor.epilogues.reader import PLAIN
from gemmtune.engine.consumers.inductor.loader.boundary import or_else
from gemmtune.engine.consumers.inductor.loader.grouped.grouped_products import (
    LOWERED,
    SCALES,
    call_first,
    grouped_product,
    operands_of,
)
from gemmtune.engine.consumers.inductor.loader.lowered import LoweredProduct

if TYPE_CHECKING:
    from torch._inductor.ir import TensorBox

    from gemmtune.engine.consumers.inductor.loader.hooks.table_choices import TableChoices
    from gemmtune.engine.consumers.inductor.loader.loader_rows import ProductRow

_ATEN_ALONE = {"max_autotune": False, "max_autotune_gemm": False}
"""Settings with which Inductor's own lowering has ATen's choice alone."""


def serve_grouped(handler: TableChoices, put: Callable[[Any, Any, Any], None]) -> None:
    """Let the rows of a handler's table serve grouped products; `put` puts a value into a mapping."""
    handler.counts.see_graph = lambda graph: call_first(graph.module.graph)  # type: ignore[method-assign]
    for operator in LOWERED:  # the lowerings count them
        put(lowerings, operator, _asking_for_rows(handler, lowerings[operator]))


def _asking_for_rows(handler: TableChoices, lower: Callable[..., Any]) -> Callable[..., Any]:
    """Return a lowering of grouped products: a row's kernel, else ATen's, or all of Inductor's if they are tuned."""

    def lowered(*operands: Any, **named: Any) -> Any:  # noqa: ANN401 (Inductor's)
        if V.choices is not handler:
            return lower(*operands, **named)
        served = _served(handler, operands, named)
        if not isinstance(served, bool):
            return served
        with config.patch(_ATEN_ALONE if served or not handler.autotunes else {}):
            return lower(*operands, **named)

    return lowered


def _failed(handler: TableChoices, operands: Sequence[Any], named: Mapping[str, Any]) -> TensorBox | bool:
    """Count a product whose look-up failed, and return that it has no row."""
    handler._count("failed", f"{V.graph.current_node.target}: the look-up failed, see the warning")
    return False


@or_else(_failed)
def _served(handler: TableChoices, operands: Sequence[Any], named: Mapping[str, Any]) -> TensorBox | bool:
    """Return the output of a row's kernel for the call that is lowered now; else whether its row chooses ATen."""
    node: Any = V.graph.current_node
    device = node.meta["val"].device
    found = grouped_product(node)
    if device.type != "cuda" or isinstance(found, str):
        elsewhere = f"on the {device.type.upper()}"
        outcome, reason = ("no problem", found) if device.type == "cuda" else ("other device", elsewhere)
        handler._count(outcome, f"{node.target}: {reason}")
        return False
    product = LoweredProduct(found.m, found.hint, found.key, 0, PLAIN)
    key, row = _row(handler, product, device)
    if row is None:
        handler._count_miss(product, device)
        return False
    binaries = handler._binaries
    reason = binaries._why_not(row, product, device) if binaries and row.kernel else ""
    if binaries is None or reason or not row.kernel:
        instead_of = f" ({row.template} {reason})" if reason else ""
        handler._count("next choice" if reason else "aten row", product, row.otherwise or row, instead_of, key)
        return True
    handler._count("row", product, row, "", key)
    return _output(binaries.choices[row.kernel], node, operands_of(node.target, operands, named))


def _row(handler: TableChoices, product: LoweredProduct, device: torch.device) -> tuple[str, ProductRow | None]:
    """Return the row that serves a product, if any, with its key.

    A fixed number of rows has a row of its own, or that of a range. One that depends on values has the row of the most
    rows that the model allows, or of the largest range: nothing guards it, and every kernel is right for all.
    """
    key, row = handler._find(product, device)
    if key and free_unbacked_symbols(product.m) and (row is None or row.is_aten):
        most, rows = V.graph.sizevars.shape_env.bound_sympy(product.m).upper, handler._rows[key]
        return key, next((each for each in rows if each.last >= most), rows[-1])  # they ascend
    if row is None and not product.is_dynamic:
        return handler._find(replace(product, key=f"{product.key.removesuffix('static')}dynamic"), device)
    return key, row


def _output(choice: Any, node: Any, operands: Mapping[str, Any]) -> TensorBox:  # noqa: ANN401 (Inductor's)
    """Return the output of a kernel that reads all with the strides by which its row was found."""
    of_node = operands_of(node.target, node.args, node.kwargs)
    names = [name for name in ("self", "mat2", *SCALES) if name in operands]
    value, held = node.meta["val"], [ExternKernel.realize_input(operands[name]) for name in names]
    steps = [convert_shape_to_inductor(of_node[name].meta["val"].stride()) for name in names]
    read = map(ExternKernel.require_exact_strides, held, steps)
    sizes, strides = map(convert_shape_to_inductor, (value.shape, value.stride()))
    nodes = [*read, ExternKernel.realize_input(operands["offs"])]
    output: TensorBox = choice.bind(nodes, FixedLayout(value.device, value.dtype, sizes, strides)).output_node()
    return output
