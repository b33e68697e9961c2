"""Rows of CuTe kernels, whose binaries the table contains. Needs torch, and the CuTe packages to run them.

A binary that computes an epilogue takes the place of the graph's node that is the epilogue's output. Nothing reads the
product any more, so Inductor drops the kernels that it has for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor import config, lowering
from torch._inductor.ir import ExternKernel, FixedLayout
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.utils import convert_shape_to_inductor
from torch._inductor.virtualized import V
from torch.fx import Node, map_arg

from gemmtune.engine.consumers.inductor.epilogues.graph_nodes import are_equal, shape_of, views_of
from gemmtune.engine.consumers.inductor.epilogues.reader import ReadEpilogue
from gemmtune.engine.consumers.inductor.loader.biases import with_whole_bias
from gemmtune.engine.consumers.inductor.loader.boundary import or_else
from gemmtune.engine.consumers.inductor.loader.kernels.extern import link, registered
from gemmtune.engine.consumers.inductor.loader.loader_rows import ProductRow
from gemmtune.engine.consumers.inductor.loader.lowered import (
    Counts,
    LoweredProduct,
    Template,
    fix_layouts,
    has_options,
    is_for_templates,
)
from gemmtune.engine.records.epilogue.chain import restored
from gemmtune.engine.records.epilogue.terms import Operand
from gemmtune.engine.tables.kernels.binary import KernelBinary, difference

if TYPE_CHECKING:
    from torch._inductor.ir import ChoiceCaller, Layout, TensorBox
    from torch._inductor.kernel_inputs import KernelInputs

_NO_BINARIES = "needs a binary, and install(binaries=False) links none"


class Binaries:
    """CuTe kernels of one table."""

    def __init__(
        self, kernels: Mapping[str, KernelBinary], counts: Counts, *, any_version: bool, allowed: bool
    ) -> None:
        """Register the kernels, if they are `allowed`: code of torch's caches calls them without asking a handler.

        With `any_version`, the packages may have other versions than those that built the kernels.
        """
        self._counts = counts
        self._kernels = {name: each._replace(epilogue=restored(each.epilogue)) for name, each in kernels.items()}
        self.choices = {name: registered(kernel) for name, kernel in self._kernels.items() if allowed}
        self._unrunnable = {
            name: reason
            for name, kernel in self._kernels.items()
            if (reason := difference(kernel, any_version=any_version) if allowed else _NO_BINARIES)
        }

    @property
    def lacking(self) -> str:
        """Reasons why kernels cannot run; part of every compile cache key."""
        return ":".join(sorted(set(self._unrunnable.values())))

    def serve(
        self,
        product: LoweredProduct | str,
        row: ProductRow | None,
        *asked: Any,  # noqa: ANN401 (Inductor's)
    ) -> tuple[list[ChoiceCaller] | None, ProductRow | None, str]:
        """Return the choices of a row's kernel, else None, the row that runs and why it runs instead of another.

        `asked` are Inductor's operands, templates and operation, and a function that returns ATen's choices of them.
        """
        keep_values()
        if row is None or isinstance(product, str) or not row.kernel:
            return None, row, ""
        if reason := self._why_not(row, product, asked[0].device()):
            return None, row.otherwise, f" ({row.template} {reason})"
        return self._choices(row, product, *asked), row, ""

    @or_else(lambda self, row, product, *asked: asked[-1]())
    def _choices(
        self,
        row: ProductRow,
        product: LoweredProduct,
        kernel_inputs: KernelInputs,
        templates: list[Template],
        op_name: str,
        aten: Callable[[], list[ChoiceCaller]],
    ) -> list[ChoiceCaller]:
        """Return the choice of a row's kernel; none where Inductor asks for ATen's alone."""
        if not is_for_templates(op_name, templates):
            return []
        kernel_inputs = with_whole_bias(kernel_inputs, product)
        kernel = self._kernels[row.kernel]
        read = self._computed(row, product)
        if not read.outputs:
            return [extern_choice(kernel, kernel_inputs, epilogue_operands(kernel_inputs, read))]
        stored = compute_epilogue(kernel, kernel_inputs, read)
        choices = aten()  # dropped: nothing reads ATen's product
        if stored is not None:
            choices[0].output_node = lambda: stored  # type: ignore[method-assign]
        return choices

    def _computed(self, row: ProductRow, product: LoweredProduct) -> ReadEpilogue:
        """Return what a row's kernel computes: the product's epilogue, or its scales alone, if it has any."""
        return product.read if self._kernels[row.kernel].epilogue == product.read.epilogue else product.scales

    def _why_not(self, row: ProductRow, product: LoweredProduct, device: torch.device) -> str:
        """Return why a row's kernel cannot run in this graph, or an empty text.

        A warning tells it once; of code that is not called from Python the report alone tells it.
        """
        if V.graph.aot_mode or V.graph.cpp_wrapper:
            return "is called from Python, not from AOTInductor's or a C++ wrapper's code"
        reason = self._unrunnable.get(row.kernel, "") or link(self._kernels[row.kernel], device.index or 0)
        if not reason and not has_options():
            reason = "needs options=gemmtune_inductor.options() in torch.compile"
        if not reason and (read := self._computed(row, product)).epilogue:
            reason = why_not_computed(read)
        if reason:
            self._counts.warn(f"gemmtune's table has a row of {row.template} that {reason}; the row's next choice runs")
        return reason


def keep_values() -> None:
    """Let the graph that is lowered keep its nodes' values, which an epilogue may read after their last reader.

    In `silu(x @ a) * (x @ b)` silu is lowered before the second product, whose epilogue reads the first one.
    """
    getattr(V.graph, "user_to_last_uses", {}).clear()


def extern_choice(
    kernel: KernelBinary, kernel_inputs: KernelInputs, further: Sequence[Any] = (), layout: Layout | None = None
) -> ChoiceCaller:
    """Return the choice of a registered kernel, and let none of its operands change its strides any more.

    `further` are buffers of the epilogue's operands, among them the scales of 8-bit floats, which Inductor has as
    operands of the product; `layout` is the output's, by default the product's.
    """
    assert isinstance(kernel_inputs, MMKernelInputs)  # as those of every LoweredProduct are
    is_scaled = kernel_inputs.dtypes()[0].itemsize == 1
    nodes = [*(kernel_inputs.mat1mat2() if is_scaled else kernel_inputs.nodes()), *further]
    fix_layouts(nodes)
    layout = layout or kernel_inputs.output_layout(flexible=False)
    choice: ChoiceCaller = registered(kernel).bind(nodes, layout)  # type: ignore[no-untyped-call]
    return choice


def why_not_computed(read: ReadEpilogue) -> str:
    """Return why no binary can compute the epilogue of the product that is lowered now, or an empty text."""
    if not getattr(config, "use_dce", True):
        return "needs Inductor's setting use_dce, which drops what nothing reads"
    sizes = shape_of(V.graph.current_node)
    for operand, node in _operand_nodes(read):
        if not _is_there(node):
            return f"cannot compute its epilogue: {operand.name} is computed behind the product"
        if not are_equal(math.prod(shape_of(node)), math.prod(_operand_sizes(operand, *sizes))):
            return f"cannot compute its epilogue: {operand.name} is expanded"
    if read.epilogue and len({output.dtype for output in read.epilogue.outputs}) > 1:
        return "cannot store outputs of several types"
    return ""


def epilogue_operands(kernel_inputs: MMKernelInputs, read: ReadEpilogue) -> list[Any]:
    """Return the operands of an epilogue, as its text orders them and as a kernel reads them."""

    def seen(operand: Operand, node: Node) -> Any:  # noqa: ANN401 (Inductor's TensorBox)
        m, n, _ = kernel_inputs.mnk_symbolic()
        found = lowering.view(_lowered_value(node), _operand_sizes(operand, m, n))
        return ExternKernel.require_stride_order(found, [0, 1] if operand.transposed else [1, 0])

    return [seen(*each) for each in _operand_nodes(read)]


def compute_epilogue(kernel: KernelBinary, kernel_inputs: KernelInputs, read: ReadEpilogue) -> TensorBox | None:
    """Let a kernel compute a product and its epilogue, in the place of the epilogue's outputs.

    Several outputs lie one behind the other in one buffer. The result is the product, if the epilogue stores it, too.
    """
    assert isinstance(kernel_inputs, MMKernelInputs)
    assert read.epilogue is not None
    m, n, _ = kernel_inputs.mnk_symbolic()
    further = epilogue_operands(kernel_inputs, read)
    count, of_product = len(read.epilogue.outputs), kernel_inputs.output_layout(flexible=False)
    dtype = read.outputs[0][0].meta["val"].dtype
    layout = FixedLayout(of_product.device, dtype, [count, *of_product.size], [m * n, *of_product.stride])
    if count == 1:
        layout = FixedLayout(of_product.device, dtype, of_product.size, of_product.stride)
    stored = extern_choice(kernel, kernel_inputs, further, layout).output_node()
    outputs = [lowering.select(stored, 0, place) for place in range(count)] if count > 1 else [stored]
    for node, place in read.outputs:
        _replace_lowering(node, lowering.view(outputs[place], convert_shape_to_inductor(node.meta["val"].shape)))
    return outputs[-1] if read.epilogue.stores_product else None


def _replace_lowering(node: Node, value: TensorBox) -> None:
    """Let a later node of the graph be lowered to a value, once."""
    target = node.target

    def lowered(*_: object, **__: object) -> TensorBox:
        node.target = target
        return value

    lowered._inductor_lowering_function = True  # type: ignore[attr-defined] # Inductor calls it with the arguments
    node.target = lowered


def _operand_nodes(read: ReadEpilogue) -> Sequence[tuple[Operand, Node]]:
    return list(zip(read.epilogue.operands, read.operands, strict=True)) if read.epilogue else []


def _operand_sizes(operand: Operand, m: Any, n: Any) -> list[Any]:  # noqa: ANN401 (numbers, or sizes that torch computes with)
    """Return the two sizes of an operand, as `Problem.shape_of` does."""
    return [m if operand.shape.has_rows else 1, n if operand.shape.has_columns else 1]


def _is_there(node: Node) -> bool:
    """Return whether a node is lowered, or is a view of one that is."""
    is_view = next(views_of(node), None) is node
    return node in V.graph.env or (is_view and all(map(_is_there, node.all_input_nodes)))


def _lowered_value(node: Node) -> Any:  # noqa: ANN401 (Inductor's TensorBox)
    """Return the value of a node that is there."""
    graph: Any = V.graph
    if node in graph.env:
        return graph.env[node]
    args, kwargs = map_arg((node.args, node.kwargs), _lowered_value)
    return graph.call_function(node.target, args, kwargs)
