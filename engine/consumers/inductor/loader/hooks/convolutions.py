"""Convolutions of 1x1, which a row of a product may serve. Needs torch alone.

Inductor lowers one in channels-last order to a product where it autotunes, and to a library's kernel elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.virtualized import V

from gemmtune.engine.consumers.inductor.epilogues.reader import PLAIN
from gemmtune.engine.consumers.inductor.loader.boundary import nothing, or_else
from gemmtune.engine.consumers.inductor.loader.loader_rows import DTYPE_NAMES
from gemmtune.engine.consumers.inductor.loader.lowered import LoweredProduct, dtype_name, is_autotuning

CONVOLUTION = torch.ops.aten.convolution.default
"""Operator whose lowering is replaced."""
_SETTINGS = {"max_autotune_gemm": True, "max_autotune_conv_backends": "ATEN"}


def asking_for_products(lower: Callable[..., Any]) -> Callable[..., Any]:
    """Return a lowering of convolutions, Inductor's own but for those that the handler of choices takes as products."""

    def lowered(*arguments: Any, **settings: Any) -> Any:  # noqa: ANN401 (Inductor's)
        takes = getattr(V.choices, "takes_convolution", None)
        product = None if takes is None or settings or is_autotuning() else _product(*arguments)
        if takes is None or product is None or not takes(product, arguments[0].get_device()):
            return lower(*arguments, **settings)
        with ExitStack() as stack:
            _ask_for_products(stack)
            return lower(*arguments)

    return lowered


@or_else(nothing)
def _ask_for_products(stack: ExitStack) -> None:
    """Set what makes a product of a convolution, as far as this torch has it."""
    stack.enter_context(config.patch({name: its for name, its in _SETTINGS.items() if hasattr(config, name)}))


@or_else(nothing)
def _product(x: Any, weight: Any, bias: Any, *rest: Any) -> LoweredProduct | None:  # noqa: ANN401 (Inductor's)
    """Return the product that a convolution is; None for one of another size, place or type."""
    stride, padding, dilation, transposed, output_padding, groups = rest
    shapes = MMKernelInputs([x, weight]).shapes_hinted()
    ones, zeros = {*stride, *dilation, groups, *shapes[1][2:]}, {*padding, *output_padding, int(transposed)}
    dtype = dtype_name(x.get_dtype())
    is_plain = [*map(len, shapes)] == [4, 4] and ones == {1} and zeros == {0} and 0 not in (*shapes[0], *shapes[1])
    if not is_plain or x.get_device().type != "cuda" or dtype not in DTYPE_NAMES or not _is_channels_last():
        return None
    (batch, k, *image), n = shapes[0], shapes[1][0]
    whole = x.get_size()
    m = whole[0] * whole[2] * whole[3]
    op, row = ("mm", "none") if bias is None else ("addmm", "vector")
    kind = "dynamic" if getattr(m, "free_symbols", None) else "static"
    key = ":".join((op, dtype, "nt", f"1x{n}x{k}", row, kind))
    return LoweredProduct(m, batch * math.prod(image), key, k, PLAIN)


def _is_channels_last() -> bool:
    """Return whether the channels of the convolution that is lowered now lie side by side."""
    value = V.graph.current_node.meta.get("val")
    is_last = isinstance(value, torch.Tensor) and value.is_contiguous(memory_format=torch.channels_last)
    return bool(V.graph.layout_opt) or is_last
