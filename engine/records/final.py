"""Finals: a problem's fastest configs timed in alternating rounds on one GPU."""

from dataclasses import dataclass, field
from math import inf

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Estimate
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload


@dataclass(frozen=True, slots=True)
class Finalist:
    """One config of a final, with its times."""

    task: Task
    """Task of the config; the finalists of one final may come from several spaces."""
    config: Config
    """Config that was timed."""
    toolchain: Toolchain
    """Versions that built the kernel."""
    estimate: Estimate
    """Time of one launch, estimated from the final's samples alone."""
    samples_ns: tuple[float, ...]
    """Time per launch in launch order, in ns, averaged over each run; fewer than the leader's if it dropped out."""
    behind: tuple[float, float] = field(metadata={"least": -inf, "most": inf})
    """95 % interval of its time over the leader's, minus 1, from paired samples; (0, 0) for the leader."""
    run: int = field(default=1, metadata={"least": 1, "sparse": True})
    """Launches per sample: several for a short kernel, one after the other between two events."""

    @property
    def fault(self) -> str:
        """Reason why no final has such a finalist; empty if one may."""
        low, high = self.behind
        return "" if low <= high else f"behind={low} to {high} is no interval"


@dataclass(frozen=True, slots=True)
class FailedFinalist:
    """Config that was ok when it was measured, and failed the check before the final."""

    task: Task
    """Task of the config."""
    config: Config
    """Config that failed the check."""
    reason: str
    """Reason of the failure, for people."""


@dataclass(frozen=True, slots=True)
class Final:
    """Result of a final of one problem on one GPU."""

    finalists: tuple[Finalist, ...]
    """Finalists by ascending time, the leader first."""
    protocol: str
    """Name of the timing protocol."""
    worker: str
    """Worker that measured: host, GPU and process."""
    created_at: str
    """UTC time of the final, ISO 8601 with seconds."""
    failed: tuple[FailedFinalist, ...] = ()
    """Configs that failed the check before the final."""

    @property
    def fault(self) -> str:
        """Reason why there is no such final; empty if there may be one."""
        return "" if self.finalists else "a final has a finalist at least"

    @property
    def problem(self) -> Workload:
        """Problem that the finalists solve."""
        return self.finalists[0].task.problem

    @property
    def device(self) -> Device:
        """Device that the finalists ran on."""
        return self.finalists[0].task.device

    @property
    def leader(self) -> Finalist:
        """Finalist with the lowest time."""
        return self.finalists[0]

    @property
    def tie_band(self) -> tuple[Finalist, ...]:
        """Finalists that the leader does not beat beyond the noise, and the leader."""
        return tuple(f for f in self.finalists if f.behind[0] <= 0)

    @property
    def regret_bound(self) -> float:
        """Largest slowdown of the leader against the best finalist, as a fraction, by the 95 % intervals."""
        return max(0.0, *(-f.behind[0] for f in self.finalists))


@dataclass(frozen=True, slots=True)
class FinalNotHeld:
    """Final that was not held; the earlier measurements rank the problem."""

    problem: Workload
    """Problem without a final."""
    reason: str
    """Reason for people why no final was held."""
