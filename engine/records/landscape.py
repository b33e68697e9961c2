"""Landscapes: recorded outcomes of one task's configs."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.workload import Workload


@dataclass(frozen=True, slots=True)
class Point:
    """Recorded outcome of one config.

    Example:
        >>> import gemmtune as gt
        >>> gt.Point(gt.Config({"tile": 64}), gt.Status.OK, 9.5e3).time_ns
        9500.0
    """

    config: Config
    """Config that was measured."""
    status: Status
    """Status of the recorded evaluation."""
    time_ns: float | None
    """Recorded time of one launch in ns; None unless the status is ok."""
    samples_ns: tuple[float, ...] = ()
    """Recorded time per launch in ns, in launch order; empty where the file has none."""
    reason: str = ""
    """Recorded reason of a failure; empty for ok."""
    resources: Resources | None = None
    """Recorded resources of the built kernel."""
    build_seconds: float | None = None
    """Recorded duration of the build, in seconds."""
    cost_seconds: float | None = None
    """Recorded duration of the whole evaluation, build included, in seconds; failures take time too."""

    @property
    def gpu_seconds(self) -> float:
        """Recorded seconds on the GPU: the whole evaluation's without the build, or else the launches'."""
        if self.cost_seconds is None:
            return sum(self.samples_ns) / 1e9
        return max(0.0, self.cost_seconds - (self.build_seconds or 0.0))

    @property
    def wall_seconds(self) -> float:
        """Recorded seconds of the evaluation, build included."""
        return (self.build_seconds or 0.0) + self.gpu_seconds


class Points(Mapping[Config, Point]):
    """Recorded outcomes by config that are no objects in memory."""

    __slots__ = ()

    @abstractmethod
    def times_ns_of_ok(self) -> Iterator[float]:
        """Yield the recorded time of each ok config in ns, without making its point."""


@dataclass(frozen=True, slots=True)
class Landscape:
    """Recorded configs of one task.

    Example:
        >>> import gemmtune as gt
        >>> config = gt.Config({"tile": 64})
        >>> point = gt.Point(config, gt.Status.OK, 9.5e3)
        >>> gt.Landscape("mine", "", (gt.Param("tile", (64,)),), {config: point}).optimum_ns
        9500.0
    """

    name: str
    """Name of the problem, or of the file if it holds one unnamed task."""
    source: str
    """Path of the file it was read from."""
    params: tuple[Param, ...]
    """Recorded parameters with every value that occurs."""
    points: Mapping[Config, Point]
    """Recorded outcome of each config, in file order."""
    problem: Workload | None = None
    """Problem that the file names; None for another kernel."""
    context: Mapping[str, str] = field(default_factory=dict)
    """Further fields of the whole task: device, space, toolchain, protocol, date."""

    @property
    def optimum_ns(self) -> float:
        """Best recorded time of one launch, in ns.

        Raises:
            ValueError: no config of the landscape is ok.
        """
        if isinstance(self.points, Points):
            return min(self.points.times_ns_of_ok())
        return min(p.time_ns for p in self.points.values() if p.time_ns is not None)
