"""Rows of CuTe kernels, whose binaries the table contains. Needs torch, and the CuTe packages to run them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor.virtualized import V

from gemmtune.engine.consumers.inductor.epilogues.reader import ReadEpilogue
from gemmtune.engine.consumers.inductor.loader.biases import with_whole_bias
from gemmtune.engine.consumers.inductor.loader.boundary import or_else
from gemmtune.engine.consumers.inductor.loader.counts import Counts
from gemmtune.engine.consumers.inductor.loader.hooks.extern_calls import (
    compute_epilogue,
    epilogue_operands,
    extern_choice,
    keep_values,
    why_not_computed,
)
from gemmtune.engine.consumers.inductor.loader.kernels.binary import KernelBinary, difference
from gemmtune.engine.consumers.inductor.loader.kernels.extern import link, registered
from gemmtune.engine.consumers.inductor.loader.loader_rows import ProductRow
from gemmtune.engine.consumers.inductor.loader.lowered import (
    LoweredProduct,
    Template,
    has_options,
    is_for_templates,
)

if TYPE_CHECKING:
    from torch._inductor.ir import ChoiceCaller
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
        self._kernels, self._counts = kernels, counts
        for kernel in kernels.values() if allowed else ():
            registered(kernel)
        self._unrunnable = {
            name: reason
            for name, kernel in kernels.items()
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
        return product.read if self._kernels[row.kernel].epilogue == str(product.read.epilogue) else product.scales

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
