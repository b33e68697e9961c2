"""A pruner: whether a candidate deserves more of the budget."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict

__all__ = ["Candidate", "Pruner"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A config on its way to a measurement, with the evidence there is so far."""

    task: Task
    """What is searched."""
    config: Config
    """The config."""
    artifact: Artifact | None = None
    """What was built; None before the build."""
    samples_ns: tuple[float, ...] = ()
    """Launches timed so far, in launch order."""


class Pruner(ABC):
    """Drops candidates early. Stateless: the same evidence gives the same verdict.

    Example:
        >>> import gemmtune as gt
        >>> from gemmtune.engine.records.verdict import Verdict
        >>> class FewStages(gt.Pruner):
        ...     def judge(self, candidate, history):
        ...         stages = candidate.config.get("num_stages", 0)
        ...         return Verdict.yes() if stages <= 5 else Verdict.no("stages", f"{stages} > 5")
        >>> gt.testing.check_pruner(FewStages)
    """

    judges_launches: ClassVar[bool] = False
    """Whether launches are its evidence. It is then for recorded landscapes: an executor that measures shows none,
    for there they race against the task's best where they are made (`measure/deciding/screening.py`)."""

    @abstractmethod
    def judge(self, candidate: Candidate, history: Sequence[Measurement]) -> Verdict:
        """Keep (yes) or drop (no, with the reason), given the task's finished measurements.

        Asked before a candidate is built, where there is its config alone; once it is built; and where launches are
        shown, after each but the last. What was dropped among its launches is in the history as invalid, with those it
        had.

        A pruner that lacks the evidence it needs keeps.
        """
