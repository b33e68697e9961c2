"""What a bench keeps of one problem: operands, right results, and the reference kernel's level. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from statistics import median

from gemmtune.engine.measure.deciding.clock_drift import Drift
from gemmtune.engine.measure.operands.operand_sets import SLOTS, OperandRing
from gemmtune.engine.measure.operands.reference import Comparison, Reference, poison
from gemmtune.engine.records.measurement import ReferenceLevel
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.seams.space import Launchable
from gemmtune.engine.statistics import estimate

__all__ = ["Stand"]

_LEVELS = 16  # first readings of the reference that its nominal level is the median of
_LEVELS_THAT_TELL = 6  # from which on their scatter is known; fewer may agree by chance
_BESIDE_ITSELF = 0.03
"""What the reference beside itself is off by, as a standard deviation: one of 34.8 µs took 33.3 beside candidates, and
the first of them was corrected by 3 % in the wrong direction (64x4096x14336, H200, 2026-11-22)."""


class Stand:
    """One problem on the bench."""

    def __init__(self, problem: Problem, ring: OperandRing, level: ReferenceLevel) -> None:
        """Set up.

        Args:
            problem: the GEMM.
            ring: its operands.
            level: the reference kernel's beside itself.
        """
        self.ring = ring
        self.level = level
        self._levels_ns: list[float] = []
        self._problem = problem
        self._references: dict[int, Reference] = {}

    @property
    def drift(self) -> Drift:
        """Drift against the reference's level beside the first candidates, whose median no single one decides.

        Before there is one: beside itself.
        """
        if len(self._levels_ns) < _LEVELS_THAT_TELL:
            return Drift(median(self._levels_ns or [self.level.time_ns]), beside=_BESIDE_ITSELF)
        nominal_ns = median(self._levels_ns)
        return Drift(nominal_ns, beside=1.4826 * median(abs(log(ns / nominal_ns)) for ns in self._levels_ns))

    def saw(self, reference_ns: Sequence[float]) -> None:
        """The reference's launches beside one measurement.

        Its last block counts. Where there was none nothing does: single launches come behind a pause of the GPU, and
        are slower than those of a block.
        """
        if len(reference_ns) >= SLOTS and len(self._levels_ns) < _LEVELS:
            self._levels_ns.append(estimate(reference_ns[-SLOTS:]).time_ns)

    @property
    def own_bytes(self) -> int:
        """Device memory that it alone holds."""
        return self.ring.own_bytes + sum(reference.nbytes for reference in self._references.values())

    def check(self, kernel: Launchable, number: int) -> Comparison:
        """Launch on the operands of that number, the output poisoned before, and compare."""
        return self.start_check(kernel, number)()

    def start_check(self, kernel: Launchable, number: int) -> Callable[[], Comparison]:
        """The same without waiting: what it returns waits, and tells."""
        number %= len(self.ring.kernel)
        operands = self.ring.kernel[number]
        if number not in self._references:
            self._references[number] = Reference(self._problem, operands)
        reference = self._references[number]
        poison(operands.out)
        kernel(*operands.arguments)
        norms = reference.norms(operands.out)
        return lambda: reference.judge(norms, operands.out)
