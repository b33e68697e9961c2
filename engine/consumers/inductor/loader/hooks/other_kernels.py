"""Kernels beside those of rows: padded products, convolutions of 1x1, and large kernels. Needs torch alone.

The vendor library is two to six times slower where rows of an operand do not start at multiples of 16 bytes. Inductor's
padding pass benchmarks such products while it compiles, and a capture for an absent GPU cannot. A rule pads where the
product gains more than the copies of its operands cost, so captures and tables see equal products.

Inductor lowers a convolution of 1x1 in channels-last order to a product where it autotunes, and to a library's kernel
elsewhere. A row of that product may serve it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.virtualized import V

from gemmtune.engine.consumers.inductor.epilogues.reader import PLAIN
from gemmtune.engine.consumers.inductor.loader.boundary import nothing, or_else
from gemmtune.engine.consumers.inductor.loader.loader_rows import DTYPE_NAMES
from gemmtune.engine.consumers.inductor.loader.lowered import LoweredProduct, dtype_name, has_options, is_autotuning

_ALIGNED = 8  # elements of two bytes in 16 bytes, to which Inductor pads
# Seconds on an H200, see experiments/padding: saved per m·n·k, and there where a row has an odd number of elements;
# per copied element of an operand that is contiguous, and of a transposed one; and per launch of a copy.
_SAVED, _SAVED_ODD = 5e-15, 18e-15
_COPY, _TRANSPOSED_COPY = 1.8e-12, 7.4e-12
_LAUNCH = 8e-6
CONVOLUTION = torch.ops.aten.convolution.default
"""Operator whose lowering is replaced."""
_SETTINGS = {"max_autotune_gemm": True, "max_autotune_conv_backends": "ATEN"}
_L2_SIZES = 3  # bytes that a large kernel moves, in sizes of the L2: some 40 us on an H200, see experiments/models


def pads(earlier: Callable[..., bool], *asked: Any, **named: Any) -> bool:  # noqa: ANN401 (torch's)
    """Decide to pad by the loader's rule; with `shape_padding` on, the earlier function decides."""
    return (earlier if getattr(config, "shape_padding", True) else should_pad)(*asked, **named)


@or_else(lambda *_, **__: False)
def should_pad(match: Any, mat1: torch.Tensor, mat2: torch.Tensor, op: Any, input: Any = None) -> bool:  # noqa: A002, ANN401 (torch's)
    """Decide in the place of Inductor's function of that name."""
    sizes = (*mat1.shape, *mat2.shape)
    is_known = all(isinstance(size, int) for size in sizes) and mat1.element_size() == mat2.element_size() == 2
    if op is torch.ops.aten.bmm or not is_known or not mat1.is_cuda:
        return False
    m, k, _, n = sizes
    rows = (_row(mat1), _row(mat2), n)
    if not any(row % _ALIGNED for row in rows):
        return False
    copied = [operand for operand, size in ((mat1, m), (mat2, n)) if size % _ALIGNED or k % _ALIGNED]
    copies = (_LAUNCH + each.numel() * (_COPY if each.stride(1) == 1 else _TRANSPOSED_COPY) for each in copied)
    return bool(m * n * k * (_SAVED_ODD if any(row % 2 for row in rows) else _SAVED) > sum(copies))


def _row(operand: torch.Tensor) -> int:
    """Return the elements from one row, or column, of a matrix to the next; those of a lone one, whatever its step."""
    steps = zip(operand.shape, operand.stride(), strict=True)
    return max(step if size > 1 else operand.numel() for size, step in steps)


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


def tuned_if_large(generate: Callable[..., str], kernel: Any, *asked: Any, **named: Any) -> str:  # noqa: ANN401 (torch's)
    """Return a kernel's generated source; a large kernel of a graph with a table's options descends when it runs first.

    Inductor chooses the config of a kernel that is no product by a rule or a short race, and descends from there in its
    mode max-autotune, for seconds per kernel. With small kernels this is a gamble: their operands lie in the L2 in the
    model, but not while Inductor times them. A kernel that moves several times what the L2 holds takes as long in both.
    """
    with config.patch(coordinate_descent_tuning=True) if _is_large(kernel) else nullcontext():
        return generate(kernel, *asked, **named)


@or_else(lambda *_: False)
def _is_large(kernel: Any) -> bool:  # noqa: ANN401 (torch's)
    device = V.graph.get_current_device_or_throw()
    if device.type != "cuda" or not has_options():
        return False
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    return bool(kernel.estimate_kernel_num_bytes() >= _L2_SIZES * l2_bytes)
