"""Positions of a layer's tensors among the arguments of a launchable, and the strides of their scales.

The order is that of `Operands.arguments` in spaces/workloads/moe.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

from gemmtune.engine.records.serving.layer import SCALE_BLOCK
from gemmtune.engine.records.serving.moe_layer import MoeLayer, MoeType
from gemmtune.spaces.triton_source.launches import Pointer

__all__ = ["FIRST", "ROUTED", "SECOND", "Operand", "aligned", "scale_strides"]

_A_OR_B = {MoeType.BF16: "bf16", MoeType.FP8_TENSOR: "fp8e4nv", MoeType.FP8_BLOCK: "fp8e4nv"}
_PER_PRODUCT = 5
_WEIGHTS, _EXPERTS, _ALIGNED = 10, 11, 12


@dataclass(frozen=True, slots=True)
class Operand:
    """Tensors of one of the two products."""

    number: int
    """0 for the first product, 1 for the second."""

    def a(self, layer: MoeLayer) -> Pointer:
        """Return the activations."""
        return Pointer(_A_OR_B[layer.dtype], (self._first,))

    def b(self, layer: MoeLayer) -> Pointer:
        """Return the experts' weights."""
        return Pointer(_A_OR_B[layer.dtype], (self._first + 1,))

    @property
    def c(self) -> Pointer:
        """Output of the product."""
        return Pointer("bf16", (self._first + 2,))

    @property
    def a_scale(self) -> Pointer:
        """Scales of the activations."""
        return Pointer("fp32", (self._first + 3,))

    @property
    def b_scale(self) -> Pointer:
        """Scales of the experts' weights."""
        return Pointer("fp32", (self._first + 4,))

    @property
    def _first(self) -> int:
        return self.number * _PER_PRODUCT


FIRST, SECOND = Operand(0), Operand(1)
ROUTED = SimpleNamespace(weights=Pointer("fp32", (_WEIGHTS,)), experts=Pointer("i32", (_EXPERTS,)))
"""Weight of each token's experts, and their numbers."""


def aligned(block_m: int, number: int) -> Pointer:
    """Return row numbers sorted by expert (0), the expert of each block (1) or the number of rows (2)."""
    return Pointer("i32", (_ALIGNED, block_m, number))


def scale_strides(layer: MoeLayer, which: Operand) -> tuple[tuple[int, int], tuple[int, int, int]]:
    """Return the strides of the scales: rows and columns of the activations'; experts, k and n of the weights'."""
    n, k = layer.products[which.number]
    if layer.dtype is MoeType.FP8_BLOCK:
        of_row = k // SCALE_BLOCK
        of_expert = -(-n // SCALE_BLOCK) * of_row
        return (of_row, 1), (of_expert, 1, of_row if n > SCALE_BLOCK else 0)
    return (0, 0), (1 if layer.dtype is MoeType.FP8_TENSOR else 0, 0, 0)
