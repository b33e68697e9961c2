"""A GPU whose truth is known: kernels of known times, on a clock that wanders as it is told to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmtune.engine.measure.deciding.blocks import Block

BLOCK_SAMPLES = 8
PARTS = 4
_AHEAD = 4096


@dataclass(frozen=True)
class SimulatedKernel:
    """A kernel's true time: `true_ns` over all operand sets, `slots` the factor of each set, 1 on average.

    The reference kernel has no more sets than a block has launches: it uses the first of these factors.
    """

    true_ns: float
    slots: np.ndarray

    @classmethod
    def draw(cls, true_ns, rng):
        slots = rng.uniform(0.99, 1.01, PARTS * BLOCK_SAMPLES)
        return cls(true_ns, slots / slots.mean())


def steady(launches):
    """Clocks that stay where they are."""
    return np.ones(launches.shape)


class SimulatedClock:
    """One GPU. `level` gives the factor of the clocks for launch numbers; `launches` counts every launch there was.

    A launch takes its kernel's time times the slot, the level and lognormal noise; one in `tail` takes another 1.3 to
    5 times as long. Times are whole ticks of 32 ns.
    """

    def __init__(self, seed, level=steady, noise=0.015, tail=0.0):
        self.launches = 0
        self._rng, self.rng = np.random.default_rng(seed), np.random.default_rng([0, *np.atleast_1d(seed)])
        self._level, self._noise, self._tail = level, noise, tail
        self._factors = np.empty(0)
        self._used = 0

    def times(self, per_launch_ns):
        """Nanoseconds of as many launches, one after the other."""
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
    """Times one kernel beside the reference kernel, launch by launch in turns.

    `beside` is the factor of the reference's time that this neighbour alone makes, `apart` what the kernel's own blocks
    differ by, as a standard deviation.
    """

    def __init__(self, clock, kernel, reference, beside=1.0, apart=0.0):
        self._clock, self._apart = clock, apart
        self._both = np.empty((PARTS, 2 * BLOCK_SAMPLES))
        self._both[:, 0::2] = kernel.true_ns * kernel.slots.reshape(PARTS, BLOCK_SAMPLES)
        self._both[:, 1::2] = beside * reference.true_ns * reference.slots[:BLOCK_SAMPLES]

    def single(self):
        return self._block(0, 2)

    def block(self, number):
        return self._block(number, 2 * BLOCK_SAMPLES)

    def _block(self, number, launches):
        both = self._both[number % PARTS, :launches].copy()
        both[0::2] *= np.exp(self._apart * self._clock.rng.standard_normal())
        times = self._clock.times(both)
        return Block(tuple(times[0::2].tolist()), tuple(times[1::2].tolist()))
