"""A recorded space: every config of one task with its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.problem import Problem

__all__ = ["Landscape", "Point"]


@dataclass(frozen=True, slots=True)
class Point:
    """One recorded config."""

    config: Config
    """The config."""
    status: Status
    """How it ended when it was recorded."""
    time_ns: float | None
    """Recorded time; None unless the status is ok."""
    samples_ns: tuple[float, ...] = ()
    """Recorded launches in launch order, where the file keeps them."""
    reason: str = ""
    """The recorded reason of a failure."""
    resources: Resources | None = None
    """What the built kernel occupied, where recorded."""
    build_seconds: float | None = None
    """What the build cost, where recorded."""
    cost_seconds: float | None = None
    """What the evaluation cost in all, build included, where recorded; failures cost too."""


@dataclass(frozen=True, slots=True)
class Landscape:
    """One task's recorded points."""

    name: str
    """The problem's name, or the file's where the file holds one unnamed task."""
    source: str
    """The file it was read from."""
    params: tuple[Param, ...]
    """The recorded parameters with every value seen."""
    points: Mapping[Config, Point]
    """Config to point, in file order."""
    problem: Problem | None = None
    """The GEMM, where the file names one."""
    context: Mapping[str, str] = field(default_factory=dict)
    """What else the file says of the whole task: device, space, toolchain, protocol, date."""

    @property
    def optimum_ns(self) -> float:
        """The best recorded time.

        Raises:
            ValueError: nothing in the landscape is ok.
        """
        return min(p.time_ns for p in self.points.values() if p.time_ns is not None)
