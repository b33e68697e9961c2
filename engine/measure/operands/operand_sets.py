"""The sets of operands of one problem that launches rotate through, and the reference kernel. Imports torch."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gemmtune.engine.measure.operands.operand_memory import OperandAllocator, OperandMemory
from gemmtune.engine.measure.operands.operands import Operands, make_operands
from gemmtune.engine.platform import vendor_gemm as vendor
from gemmtune.engine.records.problem import Problem

__all__ = ["BLOCK_SAMPLES", "COLD_BYTES_PER_L2", "OperandSets", "reference_kernel"]

BLOCK_SAMPLES = 8
"""Launches of the kernel in a block, and of the reference."""

COLD_BYTES_PER_L2 = 3
"""Bytes touched between two uses of an operand, as a multiple of L2, that leave nothing of it there."""

_SETS = 8 * BLOCK_SAMPLES
"""Sets of operands that a kernel's blocks rotate through. Where in memory operands happen to lie moves a kernel of 10
to 25 µs by 2 to 3 % (one standard deviation), each kernel its own way: between two processes the same config moves
beside the others by 1.05 % in the median over 8 sets and 0.84 % over 32 (16x4096x4096), by 0.36 and 0.16 %
(256x6144x4096; H200, 2026-11-21)."""


def reference_kernel(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> None:
    """The vendor library's GEMM on operands of its `stand_in`: what its time does, a candidate's would do too.

    A kernel of another problem would see other limits: where memory bounds one and the power limit the other, one
    slows down by 10 % while the other does not move.
    """
    vendor.multiply(a, b, out, bias)


@dataclass(frozen=True, slots=True)
class OperandSets:
    """The sets of operands of one problem that launches rotate through."""

    kernel: tuple[Operands, ...]
    """What the timed kernel works on, in the order of slots."""
    reference: tuple[Operands, ...]
    """What the reference kernel works on: other memory where the protocol is cold, and other types where the vendor
    has no kernel for those of the problem."""
    evicts: bool
    """Whether L2 must be emptied besides, because the sets of a block are too small to do it."""
    own_bytes: int
    """Device memory that is no other problem's: biases, and what did not fit the arena."""

    @classmethod
    def make(cls, problem: Problem, cold: bool, l2_bytes: int, memory_bytes: int, arena: OperandMemory) -> OperandSets:
        """Make them in the arena, within `memory_bytes`: one set for each at least, BLOCK_SAMPLES for both before more.

        Raises:
            torch.OutOfMemoryError: they do not fit.
        """
        places = OperandAllocator(arena)

        def draw(drawn: Problem, number: int) -> Operands:
            return make_operands(drawn, arena.device, number, places)

        def ring(kernel: tuple[Operands, ...], reference: tuple[Operands, ...], *, evicts: bool) -> OperandSets:
            biases = {id(made.bias): made.bias.nbytes for made in (*kernel, *reference) if made.bias is not None}
            return cls(kernel, reference, evicts, places.own_bytes + sum(biases.values()))

        first, beside = draw(problem, 0), vendor.reference_problem(problem)
        if not cold:
            return ring((first,), (first if beside == problem else draw(beside, 0),), evicts=False)
        sets = max(1, min(BLOCK_SAMPLES, memory_bytes // (first.nbytes + beside.min_bytes)))
        reference = tuple(draw(beside, number) for number in range(_SETS, _SETS + sets))
        evicts = sets * first.nbytes < COLD_BYTES_PER_L2 * l2_bytes
        if sets == BLOCK_SAMPLES:
            sets = min(
                _SETS,
                (memory_bytes - BLOCK_SAMPLES * beside.min_bytes) // first.nbytes // BLOCK_SAMPLES * BLOCK_SAMPLES,
            )
        others = (draw(problem, number) for number in range(1, sets))
        return ring((first, *others), reference, evicts=evicts)

    @property
    def parts(self) -> int:
        """Blocks of one kernel until its operands come again."""
        return max(1, len(self.kernel) // BLOCK_SAMPLES)
