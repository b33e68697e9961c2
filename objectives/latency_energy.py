"""Rank configs by latency, and give samplers latency and energy for a Pareto front."""

from gemmtune.engine.records.measurement import Measurement
from gemmtune.objectives.energy import Energy
from gemmtune.objectives.latency import Latency


class LatencyEnergy(Latency):
    """Latency and energy of one measurement; the latency ranks."""

    protocol = Energy.protocol
    parts = ("latency ns", "energy J")

    def scores(self, measurement: Measurement) -> tuple[float, ...]:
        """Return the latency in nanoseconds and the energy in joules.

        Raises:
            ValueError: the measurement's status is not ok.
            UsageError: the energy was not measured.
        """
        return self.score(measurement), Energy().score(measurement)
