"""Contract of a pruner, which drops candidates early."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Candidate:
    """Config that waits for its measurement, with the evidence so far.

    Example:
        >>> import gemmtune as gt
        >>> task = gt.testing.example_tasks()[0]
        >>> gt.Candidate(task, gt.Config({"BLOCK_M": 64})).artifact is None
        True
    """

    task: Task
    """Task that the search belongs to."""
    config: Config
    """Config that may be dropped."""
    artifact: Artifact | None = None
    """Kernel built from the config; None before the build."""


class Pruner(ABC):
    """Rule that drops candidates early. It is stateless: equal evidence gives equal verdicts.

    Example:
        >>> import gemmtune as gt
        >>> class SharedMemoryPruner(gt.Pruner):
        ...     def judge(self, candidate, history):
        ...         resources = candidate.artifact.resources if candidate.artifact else None
        ...         if resources is None or resources.shared_bytes <= 100_000:
        ...             return gt.Verdict.yes()
        ...         return gt.Verdict.no("shared memory", f"{resources.shared_bytes} B per block > 100000 B")
        >>> gt.testing.check_pruner(SharedMemoryPruner)
    """

    @abstractmethod
    def judge(self, candidate: Candidate, history: Sequence[Measurement]) -> Verdict:
        """Keep the candidate, or drop it with a rule and a reason; without the evidence it needs, keep it.

        The caller asks before the build and after it. `history` holds the task's finished measurements, in which a
        dropped candidate is invalid.
        """
