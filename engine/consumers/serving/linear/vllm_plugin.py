"""Plug-in of vLLM that serves linear layers of 8-bit floats by a gemmtune table. Needs vLLM; read with 0.33.0.

vLLM finds the folder's entry point where that is on `sys.path`, and calls `register` in each of its processes:

    PYTHONPATH=deploy/vllm_fp8 vllm serve MODEL

A layer whose n, k and scales the table has runs the row's kernel for each m, and vLLM's CUTLASS kernel where no row
serves m. Other layers, other GPUs and batch-invariant mode run what vLLM would run. The table is code.
"""

import logging
from functools import cache
from pathlib import Path
from typing import Any

import torch

from gemmtune.engine.consumers.serving.linear.serving import Linears, Product, empty_product, linears_of

__all__ = ["register", "report"]

_NAME = "GemmtuneFP8ScaledMMLinearKernel"
_OPERATOR = "gemmtune_scaled_mm"
_TABLE = "vllm_fp8_table.json"


def register() -> None:
    """Put the table's kernels before vLLM's own for 8-bit floats; a second call in one process does nothing.

    A vLLM without the names that it needs gets a warning, and starts.
    """
    try:
        _register()
    except (ImportError, AttributeError, KeyError, TypeError) as error:
        text = "gemmtune's plug-in does not know this vLLM, whose own kernels run: %s"
        logging.getLogger("gemmtune").warning(text, error)


def _register() -> None:
    from vllm.model_executor.kernels import linear
    from vllm.platforms import PlatformEnum

    kernels = linear._POSSIBLE_FP8_KERNELS[PlatformEnum.CUDA]
    if any(kernel.__name__ == _NAME for kernel in kernels):
        return
    kernels.insert(0, _kernel_class())


def report() -> dict[str, dict[str, int]]:
    """Return this process's calls by outcome and problem, `{"miss": {"48x4096x4096:e4m3:...": 7}}`.

    | outcome | what ran |
    |---|---|
    | `row` | the row's kernel. |
    | `vendor row` | vLLM's kernel: the vendor library led the row. |
    | `miss` | vLLM's kernel: no row serves the problem; tune its name with `gemmtune tune --problem`. |
    | other | vLLM's kernel: none of the row's kernels runs here, or reads the operands. |

    Calls of a replayed CUDA graph are not counted. It is empty where the table is not in use.
    """
    linears, _ = _in_use()
    return {} if linears is None else linears.report()


@cache
def _in_use() -> tuple[Linears | None, str]:
    """Return the table of this process's GPU, or why none is in use; CUDA is not initialised."""
    from vllm import envs
    from vllm.platforms import current_platform

    if envs.VLLM_BATCH_INVARIANT:
        return None, "chooses kernels by the number of rows, which VLLM_BATCH_INVARIANT forbids"
    gpu = current_platform.get_device_name()
    return linears_of(Path(__file__).parent.with_name(_TABLE), gpu)


def _kernel_class() -> type:
    """Return the class of layers that the table serves, and register the operator that they call."""
    from vllm import _custom_ops as ops
    from vllm.model_executor.kernels.linear.scaled_mm.cutlass import CutlassFP8ScaledMMLinearKernel
    from vllm.utils.torch_utils import direct_register_custom_op

    def scaled_mm(
        a: torch.Tensor,
        b: torch.Tensor,
        scale_a: torch.Tensor,
        scale_b: torch.Tensor,
        out_dtype: torch.dtype,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        linears, _ = _in_use()
        out = None if linears is None else linears.compute(a, b, (scale_a, scale_b), out_dtype, bias)
        return ops.cutlass_scaled_mm(a, b, scale_a, scale_b, out_dtype, bias) if out is None else out

    direct_register_custom_op(_OPERATOR, scaled_mm, fake_impl=empty_product)

    class Kernel(CutlassFP8ScaledMMLinearKernel):  # type: ignore[misc] # vLLM is not installed where this is checked
        """Linear layer of 8-bit floats whose n, k and scales the table has; everything else is CUTLASS's."""

        @classmethod
        def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
            """Return whether this process uses a table, and why not."""
            supported, reason = super().is_supported(compute_capability)
            if not supported:
                return supported, reason
            linears, reason = _in_use()
            return linears is not None, reason or None

        @classmethod
        def can_implement(cls, c: Any) -> tuple[bool, str | None]:  # noqa: ANN401 (vLLM's FP8ScaledMMLinearLayerConfig)
            """Return whether the table has kernels for a layer, and why not."""
            products, reason = _products(c)
            linears, unused = _in_use()
            if reason or linears is None:
                return False, reason or unused
            if any(map(linears.sizes, products)):
                return True, None
            return False, f"has no row of {products[0].text}"

        def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
            """Run each row's kernel once: the first launch loads it, and must not be captured in a CUDA graph."""
            super().process_weights_after_loading(layer)
            weight, scale, *_ = self._get_layer_params(layer)
            linears, _ = _in_use()
            if linears is not None and weight.is_cuda:
                for product in _products(self.config)[0]:
                    linears.load(product, weight, scale)

        def apply_scaled_mm(
            self,
            *,
            A: torch.Tensor,  # noqa: N803 (vLLM's names)
            B: torch.Tensor,  # noqa: N803
            out_dtype: torch.dtype,
            As: torch.Tensor,  # noqa: N803
            Bs: torch.Tensor,  # noqa: N803
            bias: torch.Tensor | None,
            output_shape: list[int],
        ) -> torch.Tensor:
            """Return A @ B with scales and bias, of shape `output_shape`."""
            out: torch.Tensor = getattr(torch.ops.vllm, _OPERATOR)(A, B, As, Bs, out_dtype, bias)
            return out.view(*output_shape)

    Kernel.__name__ = Kernel.__qualname__ = _NAME  # VLLM_DISABLED_KERNELS may name it
    return Kernel


def _products(layer: Any) -> tuple[list[Product], str]:  # noqa: ANN401 (vLLM's FP8ScaledMMLinearLayerConfig)
    """Return the products of a layer, without and with a bias, or why no row describes it."""
    activation, weight = layer.activation_quant_key, layer.weight_quant_key
    shapes = activation.scale.group_shape, weight.scale.group_shape
    row_wise = shapes[0].is_per_token() and (shapes[1].is_per_channel() or shapes[1].is_per_token())
    if not row_wise and not all(shape.is_per_tensor() for shape in shapes):
        return [], f"serves scales of tokens with channels or of whole tensors, not {activation} with {weight}"
    out_dtype = layer.out_dtype or layer.input_dtype
    if {activation.dtype, weight.dtype} != {torch.float8_e4m3fn} or out_dtype not in (torch.bfloat16, torch.float16):
        return [], f"serves e4m3 with outputs of 16 bits, not {activation.dtype}, {weight.dtype} to {out_dtype}"
    n, k = layer.weight_shape
    if n % 16 or k % 16:
        return [], f"serves multiples of 16, not n={n} and k={k}"
    return [Product(n, k, out_dtype, row_wise, bias) for bias in (False, True)], ""
