"""Place operands in memory that all problems share, scattered and equal in every process. Imports torch."""

import hashlib
from bisect import bisect, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import torch

from gemmtune.engine.measure.operands.operands import PlainSource, Values

_ALIGNMENT = 512  # bytes, as in torch's allocator


class OperandMemory:
    """Large regions that hold the operands of all workloads: one region per kind of values, one for outputs.

    The positions of operands are scattered, and depend on the tensor's name alone; see experiments/measurement. Values
    are drawn once per region. Operands of different workloads overlap, and only one workload uses them at a time.
    """

    def __init__(
        self, device: torch.device, output_sizes: Sequence[int], operand_sizes: Callable[[], Sequence[int]]
    ) -> None:
        """Allocate the region for outputs, in the first of `output_sizes` that fits; without any it is empty.

        `operand_sizes` returns the sizes to try for a kind of values, in bytes, when that kind is first needed.
        """
        self.device = device
        self._operand_sizes = operand_sizes
        self._regions: dict[Values | None, torch.Tensor] = {None: self._allocate(torch.int8, output_sizes)}

    def region(self, values: Values | None) -> torch.Tensor:
        """Return the region of this kind of values, or of outputs for None, in one dimension; empty if none fits."""
        if values not in self._regions:
            assert values is not None
            # The seed is the text of `values`: another text draws other operands.
            self._regions[values] = values.fill(self._allocate(values.dtype, self._operand_sizes()), str(values))
        return self._regions[values]

    def _allocate(self, dtype: torch.dtype, sizes: Sequence[int]) -> torch.Tensor:
        for nbytes in sizes:
            with suppress(torch.OutOfMemoryError):  # another process may have taken the memory meanwhile
                return torch.empty(nbytes // _ALIGNMENT * _ALIGNMENT // dtype.itemsize, dtype=dtype, device=self.device)
        return torch.empty(0, dtype=dtype, device=self.device)


class OperandAllocator(PlainSource):
    """Source of one workload's tensors inside the operand memory, none of them overlapping another.

    The position of a tensor follows from its name; if it is taken, the next free position is used. A tensor that fits
    nowhere gets memory of its own.
    """

    def __init__(self, memory: OperandMemory) -> None:
        super().__init__(memory.device)
        self._memory = memory
        self._shared: set[int] = set()
        self._taken: defaultdict[Values | None, list[tuple[int, int]]] = defaultdict(list)

    def own_bytes(self, tensors: Iterable[torch.Tensor]) -> int:
        """Return the size of the tensors outside the memory that all workloads share, in bytes."""
        apart = {storage.data_ptr(): storage.nbytes() for storage in (tensor.untyped_storage() for tensor in tensors)}
        return sum(nbytes for pointer, nbytes in apart.items() if pointer not in self._shared)

    def normal(self, dtype: torch.dtype, shape: tuple[int, ...], name: str, scale: float = 1.0) -> torch.Tensor:
        """Return a tensor of normal values inside the memory, or apart if it does not fit."""
        view = self._view(Values(dtype, scale), dtype, shape, name)
        return super().normal(dtype, shape, name, scale) if view is None else view

    def empty(self, dtype: torch.dtype, shape: tuple[int, ...], name: str) -> torch.Tensor:
        """Return a tensor to write inside the memory, or apart if it does not fit."""
        view = self._view(None, dtype, shape, name)
        return super().empty(dtype, shape, name) if view is None else view

    def _view(
        self, values: Values | None, dtype: torch.dtype, shape: tuple[int, ...], name: str
    ) -> torch.Tensor | None:
        region, taken = self._memory.region(values), self._taken[values]
        nbytes = torch.Size(shape).numel() * dtype.itemsize
        start = _free_position(taken, region.nbytes, nbytes, name)
        if start is None:
            return None
        insort(taken, (start, start + nbytes))
        self._shared.add(region.untyped_storage().data_ptr())
        own = region[start // region.itemsize : (start + nbytes) // region.itemsize]
        return own.view(dtype).view(shape)


def _free_position(taken: list[tuple[int, int]], size: int, nbytes: int, name: str) -> int | None:
    """Return a free position for `nbytes` bytes in a region of `size` bytes; None if the tensor does not fit."""
    last = size - nbytes
    if last < 0:
        return None
    digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    first = digest % (last + 1) // _ALIGNMENT * _ALIGNMENT
    for origin in (first, 0):  # from there to the end, then from the beginning
        position = origin
        for start, end in taken[max(0, bisect(taken, (origin, 0)) - 1) :]:
            if start >= position + nbytes:
                break
            position = max(position, -(-end // _ALIGNMENT) * _ALIGNMENT)
        if position <= last:
            return position
    return None
