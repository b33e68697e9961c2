"""Rank configs by their energy per launch."""

from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.seams.objective import Objective


class Energy(Objective):
    """Energy per launch in joules, from the GPU's energy counter over a long loop of launches."""

    protocol = "graph-cold-l2+energy"
    unit = "J"

    def score(self, measurement: Measurement) -> float:
        """Return the energy per launch, in joules.

        Raises:
            ValueError: the measurement's status is not ok.
            UsageError: the energy was not measured, for example in a landscape of times.
        """
        if measurement.status is not Status.OK:
            raise ValueError(f"a measurement that is {measurement.status} has no energy: {measurement.reason}")
        if measurement.energy_joules is None:
            raise UsageError(
                f"{measurement.worker} has no energy (protocol {measurement.protocol or 'unknown'}): measure on a GPU "
                f"with protocol {self.protocol}, or minimise latency"
            )
        return measurement.energy_joules
