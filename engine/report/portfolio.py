"""Portfolio in reports: configs and compile time saved, and time lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import count, json_fields
from gemmtune.engine.seams import registry
from gemmtune.engine.tables.portfolio import Portfolio, family

__all__ = ["PortfolioReport"]

_Chosen = tuple[Problem, str, Config]
"""A problem with its space and config."""


@dataclass(frozen=True, slots=True)
class PortfolioReport:
    """A portfolio beside the table that gives each problem its own best config."""

    portfolio: Portfolio
    """Picks with their losses."""
    device: Device
    """GPU of the table."""
    measurements: Sequence[Measurement]
    """Measurements of the picks and of each problem's own best."""

    def to_text(self) -> str:
        """Return a line on configs and losses, and one on the kernels to compile."""
        picks = self.portfolio.picks
        if not picks:
            return "portfolio: the vendor library serves every problem, nothing is compiled"
        (kernels_before, seconds_before), (kernels, seconds) = self._builds()
        return (
            f"portfolio: {count(self._configs(own=False), 'config')} for {count(len(picks), 'choice')} instead of "
            f"{self._configs(own=True)}; loss {max(p.loss for p in picks):.2%} at worst (upper end of the intervals "
            f"{max(p.bound for p in picks):.2%}), {self._mean_loss:.2%} in the weighted mean\n"
            f"to compile: {count(kernels, 'kernel')}, {_seconds(seconds)}, "
            f"instead of {kernels_before}, {_seconds(seconds_before)}"
        )

    def to_json(self) -> dict[str, object]:
        """Return the object for programs; seconds are null where a build's were not recorded."""
        picks = self.portfolio.picks
        (kernels_before, seconds_before), (kernels, seconds) = self._builds()
        return {
            "worst_allowed": self.portfolio.limits.worst,
            "mean_allowed": self.portfolio.limits.mean,
            "configs_before": self._configs(own=True),
            "configs": self._configs(own=False),
            "worst_loss": max((p.loss for p in picks), default=0.0),
            "worst_bound": max((p.bound for p in picks), default=0.0),
            "mean_loss": self._mean_loss,
            "kernels_before": kernels_before,
            "kernels": kernels,
            "build_seconds_before": seconds_before,
            "build_seconds": seconds,
            "picks": [json_fields(p, "problem", "space", "config", "own", "loss", "bound") for p in picks],
        }

    @property
    def _mean_loss(self) -> float:
        picks = self.portfolio.picks
        return fmean((p.loss for p in picks), weights=(p.problem.weight for p in picks)) if picks else 0.0

    def _configs(self, *, own: bool) -> int:
        return len({(p.space, family(p.problem), p.own if own else p.config) for p in self.portfolio.picks})

    def _builds(self) -> tuple[tuple[int, float | None], tuple[int, float | None]]:
        """Return the number of kernels and their build seconds, of each problem's own best and of the picks."""
        built = {(m.task.problem, m.task.space, m.config): m.build_seconds for m in self.measurements}

        def builds(chosen: Iterable[_Chosen]) -> tuple[int, float | None]:
            seconds: dict[str, float | None] = {}
            for problem, space, config in chosen:
                key = registry.space(space).artifact_key(Task(problem, self.device, space), config)
                seconds.setdefault(key, built.get((problem, space, config)))
            known = [s for s in seconds.values() if s is not None]
            return len(seconds), sum(known) if len(known) == len(seconds) else None

        picks = self.portfolio.picks
        return builds((p.problem, p.space, p.own) for p in picks), builds((p.problem, p.space, p.config) for p in picks)


def _seconds(seconds: float | None) -> str:
    return "seconds not recorded" if seconds is None else f"{seconds:.1f} s"
