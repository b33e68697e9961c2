"""Make the operand sets that launches rotate through, for the kernel and the reference kernel. Imports torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from gemmtune.engine.measure.operands.operand_memory import OperandAllocator, OperandMemory
from gemmtune.engine.measure.operands.operands import make_operands, tensors_of
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.kinds import kind_of
from gemmtune.engine.seams.workload import Operands
from gemmtune.engine.toolchain import vendor_gemm as vendor

BLOCK_SAMPLES = 8
"""Number of samples of the kernel in a block, and of the reference kernel."""

COLD_BYTES_PER_L2 = 3
"""Bytes touched between two uses of an operand that leave nothing of it in L2, as a multiple of L2."""

_SETS = 8 * BLOCK_SAMPLES
"""Largest number of operand sets per kernel; many average out the effect of their positions in memory."""


def reference_kernel(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> None:
    """Enqueue the vendor library's GEMM on operands of the problem that the workload is timed beside.

    For a GEMM that is the candidate's problem, so that memory and power limit both alike.
    """
    vendor.multiply(a, b, out, bias)


@dataclass(frozen=True, slots=True)
class OperandSets:
    """Operand sets of one workload, for the kernel and the reference kernel."""

    kernel: tuple[Operands, ...]
    """Operand sets of the timed kernel, in the order of launches."""
    reference: tuple[Operands, ...]
    """Operand sets of the reference kernel: in other memory if the protocol is cold."""
    evicts: bool
    """Whether L2 must be emptied by a helper kernel, because the sets of a block are too small to do it."""
    own_bytes: int
    """Device memory outside the shared memory, in bytes: biases, for example, and tensors that did not fit."""

    @classmethod
    def make(cls, workload: Workload, cold: bool, l2_bytes: int, most_bytes: int, memory: OperandMemory) -> OperandSets:
        """Make the operand sets of a workload.

        Args:
            workload: work of the kernels to time.
            cold: whether operands must come from device memory; otherwise every launch uses one set.
            l2_bytes: size of L2, in bytes.
            most_bytes: largest size of all sets, in bytes. Kernel and reference get one set each in any case, and
                BLOCK_SAMPLES each before the kernel gets more.
            memory: memory that all workloads share.

        Raises:
            torch.OutOfMemoryError: the operands do not fit.
        """
        allocator = OperandAllocator(memory)

        def draw(drawn: Workload, number: int) -> Operands:
            return make_operands(drawn, memory.device, number, allocator)

        first, beside = draw(workload, 0), kind_of(workload.kind).timed_beside(workload)
        touched_bytes = max(1, sum(map(_touched_bytes, tensors_of(first))))
        first_bytes = max(1, sum(map(_spanned_bytes, tensors_of(first))))
        beside_bytes = beside.min_bytes + first_bytes - touched_bytes  # it has the same views
        kernel: tuple[Operands, ...] = (first,)
        evicts = False
        if cold:
            count = max(1, min(BLOCK_SAMPLES, most_bytes // (first_bytes + beside_bytes)))
            reference = tuple(draw(beside, number) for number in range(_SETS, _SETS + count))
            evicts = count * touched_bytes < COLD_BYTES_PER_L2 * l2_bytes
            if count == BLOCK_SAMPLES:
                blocks = (most_bytes - BLOCK_SAMPLES * beside_bytes) // first_bytes // BLOCK_SAMPLES
                count = min(_SETS, blocks * BLOCK_SAMPLES)
            kernel += tuple(draw(workload, number) for number in range(1, count))
        else:
            reference = (first if beside == workload else draw(beside, 0),)
        tensors = (tensor for operands in (*kernel, *reference) for tensor in tensors_of(operands))
        return cls(kernel, reference, evicts, allocator.own_bytes(tensors))

    @property
    def parts(self) -> int:
        """Number of blocks of one kernel until its operands repeat."""
        return max(1, len(self.kernel) // BLOCK_SAMPLES)


def _touched_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of memory that a tensor's elements have: those of one element where it is broadcast."""
    sizes = (size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return math.prod(sizes) * tensor.itemsize


def _spanned_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of memory from a tensor's first element to its last, with those between its rows."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((size - 1) * stride for size, stride in pairs)) * tensor.itemsize if tensor.numel() else 0
