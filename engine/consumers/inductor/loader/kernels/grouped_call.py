"""Calls of binaries of grouped products. Needs torch alone."""

import json
import warnings
from collections.abc import Callable

import torch

from gemmtune.engine.tables.kernels.binary import KernelBinary
from gemmtune.engine.toolchain.launching.cute_object import ALIGNMENT


def grouped_call(kernel: KernelBinary) -> Callable[..., torch.Tensor] | None:
    """Return the call of a grouped product's kernel; None for another kernel."""
    return _call if '"offs"' in json.dumps(kernel.call) else None


def _call(
    launch: Callable[[int, dict[str, object]], None],
    a: torch.Tensor,
    b: torch.Tensor,
    offs: torch.Tensor,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    """Enqueue the products of all groups, whose ends along m, or along k, `offs` has as int32.

    A product without a row or a column is zeros, or nothing. ATen runs where an address is no multiple of 16 bytes,
    which only the launch can tell; a warning says so.
    """
    if not a.numel():
        return out.zero_()
    if any(tensor.data_ptr() & ALIGNMENT for tensor in (a, b, out)):
        needs = "gemmtune's kernel of a grouped product reads operands at multiples of 16 bytes"
        warnings.warn(f"{needs}, but one has another address, so ATen runs: align the operands", stacklevel=2)
        return out.copy_(torch._grouped_mm(a, b, offs=offs))
    launch(a.device.index, {"a": a, "b": b, "offs": offs, "out": out})
    return out
