"""Latency of one launch on a cold L2: the default objective."""

from __future__ import annotations

from statistics import median

from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.seams.objective import Objective

__all__ = ["Latency"]


class Latency(Objective):
    """Median time of one launch, the inputs coming from device memory."""

    protocol = "events-cold-l2"
    unit = "ns"

    def score(self, measurement: Measurement) -> float:
        """Median of the samples, in nanoseconds."""
        if measurement.status is not Status.OK:
            raise ValueError(f"a measurement that is {measurement.status} has no latency: {measurement.reason}")
        return median(measurement.samples_ns)
