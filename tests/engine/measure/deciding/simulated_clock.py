"""Simulate a GPU: kernels of known times on clocks that drift by a given function."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmtune.engine.measure.deciding.blocks import Block

BLOCK_SAMPLES = 8
PARTS = 4
_AHEAD = 4096


@dataclass(frozen=True)
class SimulatedKernel:
    """Kernel of known time: `true_ns` over all operand sets, with a factor per set in `set_factors`, 1 on average.

    The reference kernel has one operand set per sample of a block, and uses the first factors.
    """

    true_ns: float
    set_factors: np.ndarray

    @classmethod
    def draw(cls, true_ns, rng):
        set_factors = rng.uniform(0.99, 1.01, PARTS * BLOCK_SAMPLES)
        return cls(true_ns, set_factors / set_factors.mean())


def steady(launches):
    """Return the level of clocks that never change."""
    return np.ones(launches.shape)


class SimulatedClock:
    """Simulated GPU that counts its launches.

    A launch takes its kernel's time times the factors of operand set, clocks and lognormal noise. A share `tail` of the
    launches takes another 1.3 to 5 times as long. `level` maps launch numbers to the clocks' factor. Times are whole
    ticks of 32 ns.
    """

    def __init__(self, seed, level=steady, noise=0.015, tail=0.0):
        self.launches = 0
        self._rng, self.rng = np.random.default_rng(seed), np.random.default_rng([0, *np.atleast_1d(seed)])
        self._level, self._noise, self._tail = level, noise, tail
        self._factors = np.empty(0)
        self._used = 0

    def times(self, per_launch_ns):
        """Return the times of consecutive launches, in nanoseconds."""
        count = len(per_launch_ns)
        if self._used + count > len(self._factors):
            self._factors, self._used = self._draw(max(_AHEAD, count)), 0
        factors = self._factors[self._used : self._used + count]
        self._used += count
        self.launches += count
        return np.round(per_launch_ns * factors / 32) * 32

    def _draw(self, count):
        factors = np.exp(self._noise * self._rng.standard_normal(count))
        factors *= self._level(np.arange(self.launches, self.launches + count))
        late = np.flatnonzero(self._rng.random(count) < self._tail)
        factors[late] *= np.exp(self._rng.uniform(np.log(1.3), np.log(5.0), len(late)))
        return factors


class SimulatedTimer:
    """Timer of one simulated kernel beside the reference kernel.

    `reference_factor` is the effect of this kernel on the reference's time. `block_scatter` is the standard deviation
    between the kernel's own blocks.
    """

    def __init__(self, clock, kernel, reference, reference_factor=1.0, block_scatter=0.0):
        self._clock, self._block_scatter = clock, block_scatter
        self._both = np.empty((PARTS, 2 * BLOCK_SAMPLES))
        self._both[:, 0::2] = kernel.true_ns * kernel.set_factors.reshape(PARTS, BLOCK_SAMPLES)
        self._both[:, 1::2] = reference_factor * reference.true_ns * reference.set_factors[:BLOCK_SAMPLES]

    def single(self):
        return self._block(0, 2)

    def block(self, number):
        return self._block(number, 2 * BLOCK_SAMPLES)

    def _block(self, number, launches):
        both = self._both[number % PARTS, :launches].copy()
        both[0::2] *= np.exp(self._block_scatter * self._clock.rng.standard_normal())
        times = self._clock.times(both)
        return Block(tuple(times[0::2].tolist()), tuple(times[1::2].tolist()))
