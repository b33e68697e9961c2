"""Contract of an objective, which names the timing protocol and scores measurements."""

from abc import ABC, abstractmethod
from typing import ClassVar

from gemmtune.engine.records.measurement import Measurement

BITS = "+bits"
"""End of the names of protocols whose measurements have the bits of rows compared, too."""


class Objective(ABC):
    """Quantity that a search minimises.

    Example:
        >>> import gemmtune as gt
        >>> class WorstLaunch(gt.Objective):
        ...     protocol, unit = "graph-cold-l2", "ns"
        ...
        ...     def score(self, measurement):
        ...         if measurement.status is not gt.Status.OK:
        ...             raise ValueError(f"a measurement that is {measurement.status} has no score")
        ...         return max(measurement.samples_ns)
        >>> WorstLaunch().score(gt.testing.example_measurement())
        97100.0
        >>> gt.testing.check_objective(WorstLaunch)
    """

    protocol: ClassVar[str]
    """Name of the timing protocol that makes its measurements."""
    unit: ClassVar[str]
    """Unit of the score, for people."""
    parts: ClassVar[tuple[str, ...]] = ()
    """Name and unit of each score (`latency ns`), the ranking score first; empty for an objective of one score."""
    by_time: ClassVar[bool] = False
    """Whether the score is the estimated time in nanoseconds; of a large database, slow measurements stay unread."""

    @abstractmethod
    def score(self, measurement: Measurement) -> float:
        """Return the number to minimise, finite and above 0.

        Raises:
            ValueError: the measurement's status is not ok; a failure has no score.
            UsageError: the measurement is ok and lacks the minimised quantity; one line with the way out.
        """

    def scores(self, measurement: Measurement) -> tuple[float, ...]:
        """Return the score of each part, starting with `score`, for a search of the Pareto front; raises like `score`.

        Every score is finite and above 0.
        """
        return (self.score(measurement),)


def comparing_bits(objective: Objective) -> Objective:
    """Return the objective with a protocol that compares the bits of rows, too."""
    of = type(objective)
    found: Objective = type(of.__name__, (of,), {"protocol": f"{of.protocol}{BITS}", "__module__": of.__module__})()
    return found
