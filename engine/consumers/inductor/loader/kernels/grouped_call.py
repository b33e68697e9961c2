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
    *further: torch.Tensor,
    out: torch.Tensor,
) -> torch.Tensor:
    """Enqueue the products of all groups, whose ends along m, or along k, the last tensor has as int32.

    Scales of e4m3 stand before it. A product without a row or a column is zeros, or nothing. A tensor whose address is
    no multiple of 16 bytes, which only the launch can tell, is copied; a warning says so.
    """
    if not a.numel():
        return out.zero_()
    *scales, offs = further
    tensors = {"a": a, "b": b, **dict(zip(("column", "row"), scales, strict=False)), "out": out}
    odd = {name: tensor.clone() for name, tensor in tensors.items() if tensor.data_ptr() & ALIGNMENT}
    if odd:
        needs = "gemmtune's kernel of a grouped product reads operands at multiples of 16 bytes"
        warnings.warn(f"{needs}, but one has another address, so it is copied: align the operands", stacklevel=2)
    launch(a.device.index, {**tensors, **odd, "offs": offs.contiguous()})
    return out.copy_(odd["out"]) if "out" in odd else out
