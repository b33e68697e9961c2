"""Rank configs by their latency on a cold L2: the default objective."""

from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.seams.objective import Objective


class Latency(Objective):
    """Time of one launch in a CUDA graph, in nanoseconds, with inputs in device memory."""

    protocol = "graph-cold-l2"
    unit = "ns"
    by_time = True

    def score(self, measurement: Measurement) -> float:
        """Return the estimated time of one launch, corrected for drift, in nanoseconds.

        Raises:
            ValueError: the measurement's status is not ok, or the measurement has no estimate.
        """
        estimate = measurement.estimate
        if measurement.status is not Status.OK or estimate is None:
            why = measurement.reason or "it has no estimate"
            raise ValueError(f"a measurement that is {measurement.status} has no latency: {why}")
        return estimate.time_ns
