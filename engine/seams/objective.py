"""An objective: which protocol times a kernel, and what of the measurement is minimised."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from gemmtune.engine.records.measurement import Measurement

__all__ = ["Objective"]


class Objective(ABC):
    """What a search minimises.

    Example:
        >>> import gemmtune as gt
        >>> class Worst(gt.Objective):
        ...     protocol, unit = "graph-cold-l2", "ns"
        ...     def score(self, measurement):
        ...         if not measurement.samples_ns:
        ...             raise ValueError(f"{measurement.status} has no score")
        ...         return max(measurement.samples_ns)
        >>> Worst().unit
        'ns'
    """

    protocol: ClassVar[str]
    """Name of the timing protocol its measurements are made with."""
    unit: ClassVar[str]
    """Unit of the score, for a person."""
    parts: ClassVar[tuple[str, ...]] = ()
    """Where it has several scores, the name and the unit of each (`latency ns`), the one that ranks first."""

    @abstractmethod
    def score(self, measurement: Measurement) -> float:
        """The number to minimise, finite and above 0.

        Raises:
            ValueError: the measurement's status is not ok; a failure has no score.
            UsageError: the measurement is ok and lacks what is minimised; one line that says the way out.
        """

    def scores(self, measurement: Measurement) -> tuple[float, ...]:
        """The score of each part, each finite and above 0, `score` first; `score` alone without parts.

        A search that takes several looks for the Pareto front of them; everything else goes by `score`.

        Raises:
            ValueError: as `score`.
            UsageError: as `score`.
        """
        return (self.score(measurement),)
