"""Linear layers in fp8 with scales per block: operands, and the product in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from gemmtune.engine.consumers.serving.contract.block_linear import BlockLinear, SglangBlockFp8, VllmBlockFp8
from gemmtune.engine.consumers.serving.contract.layer import SCALE_BLOCK
from gemmtune.engine.seams.workload import Expected, Operands, TensorSource, WorkloadKind

if TYPE_CHECKING:
    import torch

_TOLERANCE = 8e-3
"""Largest ‖out − reference‖ / ‖reference‖ that rounding to bf16 may cause; see spaces/gemm/kind.py."""
_SHORT_ACCUMULATOR_TOLERANCE = 1.5e-4
"""Tolerance of Hopper's accumulator of 8-bit floats, to be multiplied by the root of k."""
_MOST_ELEMENTS = 2**27
"""Elements of a block of the product in float64: 1 GiB."""

_Layer = TypeVar("_Layer", bound=BlockLinear)


@dataclass(frozen=True, slots=True)
class BlockLinearOperands:
    """Tensors of one layer."""

    a: torch.Tensor
    """Activations in e4m3, tokens×k, row-major."""
    b: torch.Tensor
    """Weight in e4m3, n×k, row-major."""
    out: torch.Tensor
    """Output in bf16, tokens×n."""
    a_scale: torch.Tensor
    """Scale of each row and 128 elements, in float32."""
    b_scale: torch.Tensor
    """Scale of each 128×128 elements, in float32."""

    @property
    def arguments(self) -> tuple[object, ...]:
        """Arguments of a kernel's call, in order."""
        return self.a, self.b, self.out, self.a_scale, self.b_scale

    @property
    def outputs(self) -> tuple[torch.Tensor, ...]:
        """Output of the kernel."""
        return (self.out,)


class _BlockLinearKind(WorkloadKind[_Layer], Generic[_Layer]):
    listed: ClassVar[str] = "tokens"
    layers: ClassVar[type[BlockLinear]]
    """Class of the kind's workloads."""

    def parse(self, text: str) -> _Layer:
        """Return the layer of its text; see `BlockLinear.parse`."""
        return self.layers.parse(text)  # type: ignore[return-value]  # the subclass says which

    def from_fields(self, fields: Mapping[str, str]) -> _Layer:
        """Return the layer of text fields; see `BlockLinear.from_fields`."""
        return self.layers.from_fields(fields)  # type: ignore[return-value]

    def operands(self, workload: _Layer, source: TensorSource, number: int) -> BlockLinearOperands:
        """Return standard-normal activations and weights, with scales near 1."""
        import torch

        name = f"{workload.name}#{number}" if number else workload.name
        m, n, k = workload.tokens, workload.n, workload.k
        eight_bits = torch.float8_e4m3fn

        def scales(rows: int, which: str) -> torch.Tensor:
            drawn = source.own(torch.float32, (rows, k // SCALE_BLOCK), f"{name} scale of {which}")
            return drawn.abs_().mul_(0.25).add_(0.75)

        return BlockLinearOperands(
            a=source.normal(eight_bits, (m, k), f"{name} a"),
            b=source.normal(eight_bits, (n, k), f"{name} b"),
            out=source.empty(torch.bfloat16, (m, n), f"{name} out"),
            a_scale=scales(m, "a"),
            b_scale=scales(-(-n // SCALE_BLOCK), "b"),
        )

    def expected(self, workload: _Layer, operands: Operands) -> tuple[Expected, ...]:
        """Return the product in float64, by blocks of columns, so that float64 copies stay small."""
        import torch

        assert isinstance(operands, BlockLinearOperands)
        a = operands.a.double() * operands.a_scale.double().repeat_interleave(SCALE_BLOCK, dim=1)
        columns = max(1, _MOST_ELEMENTS // max(workload.tokens, workload.k) // SCALE_BLOCK) * SCALE_BLOCK
        parts = []
        for first in range(0, workload.n, columns):
            b = operands.b[first : first + columns].double()
            scale = operands.b_scale[first // SCALE_BLOCK : -(-(first + columns) // SCALE_BLOCK)].double()
            rows = scale.repeat_interleave(SCALE_BLOCK, dim=0)[: b.shape[0]]
            parts.append((a @ (b * rows.repeat_interleave(SCALE_BLOCK, dim=1)).mT).float())
        tolerance = max(_TOLERANCE, _SHORT_ACCUMULATOR_TOLERANCE * workload.k**0.5)
        return (Expected(torch.cat(parts, dim=1), tolerance, workload.k**0.5),)


class VllmBlockFp8Kind(_BlockLinearKind[VllmBlockFp8]):
    """Layers of vLLM's Triton kernel."""

    layers = VllmBlockFp8


class SglangBlockFp8Kind(_BlockLinearKind[SglangBlockFp8]):
    """Layers of SGLang's Triton kernels."""

    layers = SglangBlockFp8
