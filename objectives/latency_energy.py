"""Latency and energy of one launch, for a sampler that seeks the Pareto front of the two."""

from __future__ import annotations

from gemmtune.engine.records.measurement import Measurement
from gemmtune.objectives.energy import Energy
from gemmtune.objectives.latency import Latency

__all__ = ["LatencyEnergy"]


class LatencyEnergy(Latency):
    """Both, of the same launches; latency ranks."""

    protocol = Energy.protocol
    parts = ("latency ns", "energy J")

    def scores(self, measurement: Measurement) -> tuple[float, ...]:
        """Latency in nanoseconds and energy in joules.

        Raises:
            ValueError: the measurement's status is not ok.
            UsageError: the energy was not measured.
        """
        return self.score(measurement), Energy().score(measurement)
