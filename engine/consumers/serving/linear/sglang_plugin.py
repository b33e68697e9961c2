"""Plug-in of SGLang that serves linear layers of 8-bit floats by a gemmtune table. Needs SGLang; read with 0.5.23.

SGLang finds the folder's entry point where that is on `sys.path`, and calls `register` in each of its processes:

    PYTHONPATH=deploy/sglang_fp8 python -m sglang.launch_server --model-path MODEL

Where SGLang would run its CUTLASS kernel with a scale per token and per channel, the row's kernel for m runs; CUTLASS
runs where no row serves m, on other GPUs, and in batch-invariant mode. The table is code.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from gemmtune.engine.consumers.serving.linear.serving import Linears, empty_product, linears_of

__all__ = ["register", "report"]

_TARGET = "sglang.srt.layers.quantization.fp8_utils.fp8_scaled_mm"
_TABLE = "sglang_fp8_table.json"
_OPERATOR = "fp8_scaled_mm"
_libraries: list[torch.library.Library] = []  # at most one: it keeps the operator
_originals: list[Callable[..., torch.Tensor]] = []  # at most one: SGLang's function


def register() -> None:
    """Put the table before SGLang's CUTLASS kernel for 8-bit floats; a second call in one process does nothing."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    if not _libraries:
        library: Any = torch.library.Library("gemmtune", "FRAGMENT")  # type: ignore[no-untyped-call] # torch's
        library.define(_OPERATOR + torch.library.infer_schema(_scaled_mm, mutates_args=[]))
        library.impl(_OPERATOR, _scaled_mm, "CompositeExplicitAutograd")
        library._register_fake(_OPERATOR, empty_product)
        _libraries.append(library)
        HookRegistry.register(_TARGET, _around, HookType.AROUND)


def report() -> dict[str, dict[str, int]]:
    """Return this process's calls by outcome and problem, see `Linears.report`; empty where no table is in use."""
    linears = _in_use()[0] if torch.cuda.is_available() else None
    return {} if linears is None else linears.report()


@cache
def _in_use() -> tuple[Linears | None, str]:
    """Return the table of torch's current GPU, or why none is in use."""
    from sglang.srt.batch_invariant_ops import is_batch_invariant_mode_enabled

    if is_batch_invariant_mode_enabled():
        return None, "chooses kernels by the number of rows, which batch-invariant mode forbids"
    return linears_of(Path(__file__).parent.with_name(_TABLE), torch.cuda.get_device_name())


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator] # torch's
def _remember(original: Callable[..., torch.Tensor]) -> None:
    """Keep SGLang's function, while a graph is traced: Dynamo replays other side effects behind the graph."""
    if not _originals:
        _originals.append(original)


def _around(
    original: Callable[..., torch.Tensor],
    mat_a: torch.Tensor,
    mat_b: torch.Tensor,
    scales_a: torch.Tensor,
    scales_b: torch.Tensor,
    out_dtype: torch.dtype,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute what SGLang's function `original` does, by an operator that a compiler traces."""
    _remember(original)
    out: torch.Tensor = getattr(torch.ops.gemmtune, _OPERATOR)(mat_a, mat_b, scales_a, scales_b, out_dtype, bias)
    return out


def _scaled_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    linears, _ = _in_use()
    out = None if linears is None else linears.compute(a, b, (scale_a, scale_b), out_dtype, bias)
    return _originals[0](a, b, scale_a, scale_b, out_dtype, bias) if out is None else out
