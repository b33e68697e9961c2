"""An objective: which protocol times a kernel, and what of the measurement is minimised."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from gemmtune.engine.records.measurement import Measurement

__all__ = ["Objective"]


class Objective(ABC):
    """What a search minimises."""

    protocol: ClassVar[str]
    """Name of the timing protocol its measurements are made with."""
    unit: ClassVar[str]
    """Unit of the score, for a person."""
    parts: ClassVar[tuple[str, ...]] = ()
    """Names of the parts of an objective of several, with their units, the one that ranks first; empty for one."""

    @abstractmethod
    def score(self, measurement: Measurement) -> float:
        """The number to minimise, finite and above 0.

        Raises:
            ValueError: the measurement's status is not ok; a failure has no score.
        """

    def scores(self, measurement: Measurement) -> tuple[float, ...]:
        """The score of each part, `score` first, each finite and above 0; by default there is one part.

        Raises:
            ValueError: as `score`.
        """
        return (self.score(measurement),)
