"""Products of 8-bit operands as Inductor asks for them: with scales, or of whole numbers. Needs torch alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.lowering import view
from torch._inductor.virtualized import V

from gemmtune.engine.consumers.inductor.epilogues.graph_nodes import name_of
from gemmtune.engine.consumers.inductor.epilogues.reader import PLAIN, read_epilogue, scales_alone
from gemmtune.engine.consumers.inductor.epilogues.scales import SCALED, leading_scales
from gemmtune.engine.consumers.inductor.loader.lowered import LoweredProduct, is_open, placed
from gemmtune.engine.records.gemm.stated import stated_texts

if TYPE_CHECKING:
    from gemmtune.engine.consumers.inductor.loader.loader_rows import ProductRow

_INT_MM = "int_mm"
_OPERATIONS = {**dict.fromkeys(SCALED, "scaled_mm"), "_int_mm": _INT_MM}
"""Inductor's names of operations, by the names of torch's operators."""
_SHORT = {torch.float8_e4m3fn: "e4m3", torch.float8_e5m2: "e5m2", torch.int8: "int8"}


class QuantisedProduct(LoweredProduct):
    """Product of 8-bit operands that a row may describe."""

    @property
    def full_key(self) -> str:
        """Table's key with the epilogue, which begins with the scales."""
        if not self.read.epilogue:
            return self.key
        return f"{self.key.removesuffix(f':{self.scales.epilogue}')}:{self.read.epilogue}"


def quantised_product(kernel_inputs: Any, op_name: str) -> LoweredProduct | str | None:  # noqa: ANN401 (Inductor's)
    """Return a product of 8-bit operands, or the operation and why no row describes it; None for another product."""
    if op_name not in _OPERATIONS.values() or not isinstance(kernel_inputs, MMKernelInputs):
        return None
    node = V.graph.current_node
    if not isinstance(node, torch.fx.Node) or _OPERATIONS.get(name_of(node)) != op_name:
        return None
    found = _described(kernel_inputs, op_name, node)
    sizes = "x".join(map(str, kernel_inputs.mnk_hinted()))
    return f"{op_name}: {found}, in a product of {sizes}" if isinstance(found, str) else found


def row_of(
    product: LoweredProduct | str, find: Callable[[LoweredProduct | str], tuple[str, ProductRow | None]]
) -> tuple[LoweredProduct | str, tuple[str, ProductRow | None]]:
    """Return a product with its key and row.

    One of fast sums that has no row is served as the one of exact sums, whose kernels are right for it. ATen's is not
    the one that was timed there: it sums fast. One of whole numbers takes its sums' row behind its chain's.
    """
    found = find(product)
    if found[1] is not None or isinstance(product, str):
        return product, found
    operation, dtype, *rest = product.key.split(":")
    if operation == _INT_MM:
        return product, find(replace(product, key=":".join((operation, "int8", *rest)), read=PLAIN))
    exact = replace(product, key=":".join((operation, f"{dtype}_exact", *rest)), keywords={"USE_FAST_ACCUM": False})
    of_exact = find(exact)
    return (product, found) if of_exact[1] is None or of_exact[1].is_aten else (exact, of_exact)


def with_matrices(kernel_inputs: MMKernelInputs, product: LoweredProduct) -> MMKernelInputs:
    """Return the operands of a product, whose scales, if any, get the two dimensions that its template reads."""
    if not product.scales.epilogue:
        return kernel_inputs
    a, b, *scales = kernel_inputs.nodes()
    scales[:2] = [view(each, [1, 1]) if len(each.get_size()) not in (0, 2) else each for each in scales[:2]]
    return MMKernelInputs([a, b, *scales], out_dtype=kernel_inputs.out_dtype(), mat1_idx=0, mat2_idx=1)


def _described(kernel_inputs: MMKernelInputs, op_name: str, node: torch.fx.Node) -> LoweredProduct | str:
    """Return the product, or why no row describes it."""
    m, n, k = kernel_inputs.mnk_symbolic()
    if any(map(is_open, (n, k))):
        return "n or k is dynamic"
    if 0 in (m, n, k):
        return "it is empty"
    a, b = kernel_inputs.dtypes()[:2]
    of_a, of_b, out = (str(each).removeprefix("torch.") for each in (a, b, kernel_inputs.out_dtype()))
    if a not in _SHORT or b not in _SHORT or kernel_inputs.out_dtype().itemsize == 1:
        return f"tables have no rows of {of_a} by {of_b} with an output of {out}"
    read, facts = read_epilogue(node), [] if b is a else [_SHORT[b]]
    scales, keywords = PLAIN, dict[str, bool]()
    if op_name != _INT_MM:
        leading = leading_scales(node)
        if isinstance(leading, str):
            return leading
        scales, keywords = scales_alone(leading), {"USE_FAST_ACCUM": leading.is_fast}
        facts += [] if leading.is_fast else ["exact"]
    elif read.epilogue:  # types of its text are relative to that of the graph's first output
        out = str(read.outputs[0][0].meta["val"].dtype).removeprefix("torch.")
    layouts, stated = "", dict[str, Any]()
    for name, place in (("a", 0), ("b", 1)):
        where = placed(kernel_inputs, place)
        if isinstance(where, str):
            return where
        layout, stated[f"ld{name}"], _ = where
        layouts += layout
    if layouts != "nt":
        return f"operands of layouts {layouts}, where torch's kernel wants nt"
    dtype = "_".join([_SHORT[a], *([] if out == ("int32" if a is torch.int8 else "bfloat16") else [out]), *facts])
    hint, count_n, count_k = kernel_inputs.mnk_hinted()
    kind = "dynamic" if is_open(m) else "static"
    parts = (op_name, dtype, layouts, f"1x{count_n}x{count_k}", "none", kind, *stated_texts(stated))
    key = ":".join((*parts, *([str(scales.epilogue)] if scales.epilogue else [])))
    return QuantisedProduct(m, hint, key, count_k, read, scales=scales, keywords=keywords)
