"""Make the tensors of a workload on the GPU. Imports torch."""

import hashlib
from dataclasses import dataclass

import torch

from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.kinds import kind_of
from gemmtune.engine.seams.workload import Operands, TensorSource

_MOST_DRAWN = 1 << 28  # elements drawn at once, so that float32 copies of 8-bit values stay small


@dataclass(frozen=True, slots=True)
class Values:
    """Distribution of an operand's values: normal with the standard deviation `scale`.

    Integers are rounded. Values of 8 bits beyond the greatest saturate, as quantised ones do.
    """

    dtype: torch.dtype
    scale: float = 1.0

    def fill(self, tensor: torch.Tensor, seed: str) -> torch.Tensor:
        """Draw all elements of a contiguous tensor, equal for equal seeds on every device, and return the tensor."""
        number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") >> 1
        generator = torch.Generator(tensor.device).manual_seed(number)
        for part in torch.split(tensor.view(-1), _MOST_DRAWN):
            if self.dtype.itemsize > 1 and self.dtype.is_floating_point:
                part.normal_(0.0, self.scale, generator=generator)
                continue
            drawn = torch.randn(part.shape, device=part.device, generator=generator)  # torch draws no such values
            floats = self.dtype.is_floating_point
            bounds = torch.finfo(self.dtype) if floats else torch.iinfo(self.dtype)
            drawn = drawn * self.scale if floats else (drawn * self.scale).round()
            part.copy_(drawn.clamp(bounds.min, bounds.max))
        return tensor


class PlainSource:
    """Source of operand tensors that gives every tensor memory of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self._device

    def normal(self, dtype: torch.dtype, shape: tuple[int, ...], name: str, scale: float = 1.0) -> torch.Tensor:
        """Return a contiguous tensor of normal values; another name gets other values."""
        values = Values(dtype, scale)
        return values.fill(torch.empty(shape, dtype=dtype, device=self._device), name)

    def own(self, dtype: torch.dtype, shape: tuple[int, ...], name: str) -> torch.Tensor:
        """Return a tensor of normal values, which may be written to."""
        return Values(dtype).fill(torch.empty(shape, dtype=dtype, device=self._device), name)

    def empty(self, dtype: torch.dtype, shape: tuple[int, ...], name: str) -> torch.Tensor:
        """Return a contiguous tensor for a kernel to write."""
        return torch.empty(shape, dtype=dtype, device=self._device)


def make_operands(
    workload: Workload, device: torch.device, number: int = 0, source: TensorSource | None = None
) -> Operands:
    """Return one operand set of a workload.

    Args:
        workload: sizes, types and layouts.
        device: device of the tensors.
        number: number of the operand set; each set has values and memory of its own.
        source: source of the tensors. The default gives each tensor memory of its own, with values that depend on
            workload and number alone.

    Raises:
        torch.OutOfMemoryError: the tensors do not fit.
    """
    return kind_of(workload.kind).operands(workload, source or PlainSource(device), number)


def tensors_of(operands: Operands) -> tuple[torch.Tensor, ...]:
    """Return the tensors among the arguments."""
    return tuple(argument for argument in operands.arguments if isinstance(argument, torch.Tensor))
