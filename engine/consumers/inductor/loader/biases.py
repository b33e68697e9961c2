"""Biases of products as Inductor asks for them: names, and operands of the rows' kernels. Needs torch alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._inductor.ir import TensorBox
from torch._inductor.kernel_inputs import MMKernelInputs
from torch._inductor.lowering import expand
from torch._inductor.select_algorithm import realize_inputs
from torch._inductor.virtualized import V
from torch.fx.experimental.symbolic_shapes import statically_known_true as is_known

from gemmtune.engine.consumers.inductor.loader.loader_rows import BIASED
from gemmtune.engine.records.gemm.stated import bias_of
from gemmtune.engine.toolchain.unread_bias import unread_bias

if TYPE_CHECKING:
    from torch._inductor.kernel_inputs import KernelInputs

_BIAS_PLACES: dict[Any, int] = {torch.ops.aten.addmm: 0, torch.ops.aten.baddbmm: 0, torch.ops.aten.convolution: 2}
"""Places of the bias among the arguments of the graph's operators that are lowered to a product with one."""


def bias_of_product(kernel_inputs: MMKernelInputs) -> tuple[str, dict[str, Any] | str]:
    """Return the bias of a product with its scalars, or why no row describes them."""
    scalars = {name: kernel_inputs.get_scalar(name) for name in ("alpha", "beta")}
    for name, value in scalars.items():
        if not isinstance(value, int | float) or not math.isfinite(value) or (name == "alpha" and value == 0):
            return "", f"{name} is {value}"
    *batch, m, _ = kernel_inputs.output_layout().size
    n = kernel_inputs.mnk_hinted()[1]
    size, stride = _bias_in_graph() or (kernel_inputs.shapes_hinted()[0], kernel_inputs.strides_hinted()[0])
    if bias := bias_of(size, stride, (m, n, *(batch or [1])), lambda one, other: is_known(one == other)):
        return bias, {name: float(value) for name, value in scalars.items()}
    shown = " and ".join(f"{name} {'x'.join(map(str, its))}" for name, its in (("sizes", size), ("strides", stride)))
    shown = shown if size else "one number"
    return "", f"the bias, {shown}, is neither a row nor a matrix of rows"


def _bias_in_graph() -> tuple[Sequence[Any], Sequence[Any]] | None:
    """Return sizes and strides of the bias as the graph has it, None where it does not say.

    Torch asks several times for one addmm: with the bias, and with the bias expanded to all rows, which may be a copy.
    """
    node = V.graph.current_node
    place = _BIAS_PLACES.get(getattr(node.target, "overloadpacket", None)) if isinstance(node, torch.fx.Node) else None
    bias = None if place is None else node.args[place]
    value = bias.meta.get("val") if isinstance(bias, torch.fx.Node) else None
    return (tuple(value.shape), tuple(value.stride())) if isinstance(value, torch.Tensor) else None


def with_whole_bias(kernel_inputs: KernelInputs, product: Any) -> MMKernelInputs:  # noqa: ANN401 (a LoweredProduct)
    """Return the operands of a row's kernel, whose bias has all rows: torch may ask with the bias as it is."""
    assert isinstance(kernel_inputs, MMKernelInputs)  # as those of every LoweredProduct are
    if not product.key.startswith(BIASED):
        return kernel_inputs
    bias, *factors = kernel_inputs.nodes()
    sizes = [*factors[0].get_size()[:-2], product.m, kernel_inputs.mnk_symbolic()[1]]
    if [*bias.get_size()] == sizes:
        return kernel_inputs
    boxed = bias if isinstance(bias, TensorBox) else TensorBox(bias)
    whole = realize_inputs(expand(boxed, sizes))  # type: ignore[no-untyped-call]
    scalars = {name: kernel_inputs.get_scalar(name) for name in ("alpha", "beta")}
    return MMKernelInputs([whole, *factors], scalars=scalars)


def leave_out_bias(made: Any, kernel_inputs: MMKernelInputs, op_name: str) -> None:  # noqa: ANN401 (Inductor's)
    """Let the template of a choice take nothing of a bias whose factor is 0."""
    if op_name in BIASED and kernel_inputs.get_scalar("beta") == 0:
        made.extra_kwargs = {**made.extra_kwargs, **unread_bias(float(kernel_inputs.get_scalar("alpha")))}
