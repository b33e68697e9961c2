"""Integer weights with a scale per group, packed as both engines pack GPTQ and AWQ models for their Triton kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmtune.engine.consumers.serving.contract.wna16_layer import Wna16Layer
from gemmtune.engine.seams.workload import TensorSource

if TYPE_CHECKING:
    import torch

_SPREAD = 40.0
"""Standard deviation of the bytes drawn, with which each value of four bits is about as frequent."""


def packed_weight(layer: Wna16Layer, source: TensorSource, shape: tuple[int, ...], name: str) -> torch.Tensor:
    """Return bytes of shape (experts, n, k/2) in int4, the lower half for the even k, or (experts, n, k) in int8."""
    return _bytes(source, (*shape[:2], shape[2] // layer.dtype.packed), name)


def group_scales(layer: Wna16Layer, source: TensorSource, shape: tuple[int, ...], name: str) -> torch.Tensor:
    """Return scales near 1 in bf16, of shape (experts, n, groups)."""
    import torch

    groups = (*shape[:2], shape[2] // layer.group)
    return source.own(torch.bfloat16, groups, name).abs_().mul_(0.25).add_(0.75)


def zero_points(layer: Wna16Layer, source: TensorSource, name: str) -> tuple[torch.Tensor, ...]:
    """Return both products' bytes of shape (experts, n/2, groups) in int4, else (experts, n, groups); none without."""
    return tuple(
        _bytes(source, (layer.experts, n // layer.dtype.packed, k // layer.group), f"{name} zeros of b{i}")
        for i, (n, k) in enumerate(layer.products if layer.zeros else ())
    )


def unpacked_weight(
    layer: Wna16Layer, weight: torch.Tensor, scale: torch.Tensor, zeros: torch.Tensor | None
) -> torch.Tensor:
    """Return one expert's weight in float64, n×k, from its bytes, scales and zero points."""
    values = _halves(layer, weight, 1).double()
    if zeros is None:
        middle = 8.0 if layer.dtype.packed == 2 else 128.0
        return (values - middle) * scale.double().repeat_interleave(layer.group, dim=1)
    of_groups = _halves(layer, zeros, 0).double()
    return (values - of_groups.repeat_interleave(layer.group, dim=1)) * scale.double().repeat_interleave(
        layer.group, dim=1
    )


def _bytes(source: TensorSource, shape: tuple[int, ...], name: str) -> torch.Tensor:
    import torch

    return source.normal(torch.int8, shape, name, _SPREAD).view(torch.uint8)


def _halves(layer: Wna16Layer, packed: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the values of a matrix of bytes that has two per byte along an axis in int4; the bytes in int8."""
    import torch

    if layer.dtype.packed == 1:
        return packed
    return torch.stack((packed & 15, packed >> 4), dim=dim + 1).flatten(dim, dim + 1)
