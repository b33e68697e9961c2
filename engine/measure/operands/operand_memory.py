"""Where operands lie: scattered over a large part of memory, the same way in every process. Imports torch."""

from __future__ import annotations

import hashlib
from bisect import bisect, insort
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch

from gemmtune.engine.measure.operands.operands import SeparateTensors, Values

__all__ = ["OperandAllocator", "OperandMemory"]

_ALIGNMENT = 512  # bytes, as torch's allocator aligns what it gives out


class OperandMemory:
    """Large pieces of memory that the operands of all problems lie in: one of values of each kind, one of outputs.

    Where operands lie in memory moves a kernel that is bound by bandwidth by up to 4 %, the kernels of one problem all
    the same way, and a process that sets up its problems in another order puts them elsewhere: one GEMM of
    16x4096x4096 took 10.35 µs on the first operands of a process and 10.44 to 10.76 µs on later ones, 32 sets of them.
    On sets scattered over the memory it took 10.41 to 10.70 µs wherever they were thrown (H200, 2026-11-21).

    Values are drawn once and shared: operands of several problems overlap, which only one of them uses at a time. So
    setting up a problem draws nothing and keeps little. While each had memory of its own, the hundred problems of a
    campaign drove each other out, and every return to one cost 86 ms, half of the GPU's time (H200, 2026-11-22).
    """

    def __init__(
        self, device: torch.device, output_sizes: Sequence[int], piece_sizes: Callable[[], Sequence[int]]
    ) -> None:
        """Take the memory of the outputs.

        Args:
            device: where.
            output_sizes: bytes for them, the first that can be had; none where it is empty.
            piece_sizes: asked when values of a kind are first needed: the same for them.
        """
        self.device = device
        self._piece_sizes = piece_sizes
        self._pieces: dict[Values | None, torch.Tensor] = {None: self._piece(torch.int8, output_sizes)}

    def piece(self, values: Values | None) -> torch.Tensor:
        """All memory of such values, or of outputs, in one dimension; empty where none is to be had."""
        if values not in self._pieces:
            assert values is not None
            self._pieces[values] = values.fill(self._piece(values.dtype, self._piece_sizes()), str(values))
        return self._pieces[values]

    def _piece(self, dtype: torch.dtype, sizes: Sequence[int]) -> torch.Tensor:
        for nbytes in sizes:
            with suppress(torch.OutOfMemoryError):  # another process may take what was free when it was looked
                return torch.empty(nbytes // _ALIGNMENT * _ALIGNMENT // dtype.itemsize, dtype=dtype, device=self.device)
        return torch.empty(0, dtype=dtype, device=self.device)


class OperandAllocator:
    """Where the operands of one problem lie in an arena, none of them over another: a source of operands.

    A tensor has a place of its own, derived from its name, or one behind it where that is taken. What fits nowhere is
    drawn apart.
    """

    own_bytes: int
    """Memory of what was drawn apart."""

    def __init__(self, arena: OperandMemory) -> None:
        """Begin with nothing taken."""
        self.own_bytes = 0
        self._arena = arena
        self._apart = SeparateTensors(arena.device)
        self._taken: defaultdict[Values | None, list[tuple[int, int]]] = defaultdict(list)

    def normal(self, values: Values, shape: tuple[int, ...], name: str) -> torch.Tensor:
        """As in `TensorSource`."""
        placed = self._placed(values, values.dtype, shape, name)
        return self._noted(self._apart.normal(values, shape, name)) if placed is None else placed

    def empty(self, dtype: torch.dtype, shape: tuple[int, ...], name: str) -> torch.Tensor:
        """As in `TensorSource`."""
        placed = self._placed(None, dtype, shape, name)
        return self._noted(self._apart.empty(dtype, shape, name)) if placed is None else placed

    def _placed(
        self, values: Values | None, dtype: torch.dtype, shape: tuple[int, ...], name: str
    ) -> torch.Tensor | None:
        piece, taken = self._arena.piece(values), self._taken[values]
        nbytes = torch.Size(shape).numel() * dtype.itemsize
        start = _free(taken, piece.nbytes, nbytes, name)
        if start is None:
            return None
        insort(taken, (start, start + nbytes))
        own = piece[start // piece.itemsize : (start + nbytes) // piece.itemsize]
        return own.view(dtype).view(shape)

    def _noted(self, tensor: torch.Tensor) -> torch.Tensor:
        self.own_bytes += tensor.nbytes
        return tensor


def _free(taken: list[tuple[int, int]], size: int, nbytes: int, name: str) -> int | None:
    last = size - nbytes
    if last < 0:
        return None
    digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
    first = digest % (last + 1) // _ALIGNMENT * _ALIGNMENT
    for origin in (first, 0):  # from there to the end, then from the beginning
        at = origin
        for start, end in taken[max(0, bisect(taken, (origin, 0)) - 1) :]:
            if start >= at + nbytes:
                break
            at = max(at, -(-end // _ALIGNMENT) * _ALIGNMENT)
        if at <= last:
            return at
    return None
