"""What a portfolio saves, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import count
from gemmtune.engine.seams import registry
from gemmtune.engine.tables.portfolio import Pick, Portfolio, family

__all__ = ["portfolio_record", "portfolio_text"]


def portfolio_text(portfolio: Portfolio, device: Device, measurements: Iterable[Measurement]) -> str:
    """A line on configs and losses, and one on what is compiled."""
    if not portfolio.picks:
        return "portfolio: the vendor library serves every problem, nothing is compiled"
    picks = portfolio.picks
    own, shared = _configs(picks, own=True), _configs(picks, own=False)
    (kernels_own, seconds_own), (kernels, seconds) = _builds(picks, device, measurements)
    return (
        f"portfolio: {count(shared, 'config')} for {count(len(picks), 'choice')} instead of {own}; loss "
        f"{max(p.loss for p in picks):.2%} at worst (upper end of the intervals {max(p.bound for p in picks):.2%}), "
        f"{_mean(picks):.2%} in the weighted mean\n"
        f"to compile: {count(kernels, 'kernel')}, {_seconds(seconds)}, "
        f"instead of {kernels_own}, {_seconds(seconds_own)}"
    )


def portfolio_record(portfolio: Portfolio, device: Device, measurements: Iterable[Measurement]) -> dict[str, object]:
    """The same for programs; seconds are null where a build's were not recorded."""
    picks = portfolio.picks
    (kernels_own, seconds_own), (kernels, seconds) = _builds(picks, device, measurements)
    return {
        "worst_allowed": portfolio.limits.worst,
        "mean_allowed": portfolio.limits.mean,
        "configs_before": _configs(picks, own=True),
        "configs": _configs(picks, own=False),
        "worst_loss": max((p.loss for p in picks), default=0.0),
        "worst_bound": max((p.bound for p in picks), default=0.0),
        "mean_loss": _mean(picks),
        "kernels_before": kernels_own,
        "kernels": kernels,
        "build_seconds_before": seconds_own,
        "build_seconds": seconds,
        "picks": [
            {
                "problem": p.problem.name,
                "space": p.space,
                "config": dict(p.config),
                "own": dict(p.own),
                "loss": p.loss,
                "bound": p.bound,
            }
            for p in picks
        ],
    }


def _configs(picks: Iterable[Pick], *, own: bool) -> int:
    return len({(p.space, family(p.problem), p.own if own else p.config) for p in picks})


def _mean(picks: tuple[Pick, ...]) -> float:
    return fmean((p.loss for p in picks), weights=(p.problem.weight for p in picks)) if picks else 0.0


def _builds(
    picks: Iterable[Pick], device: Device, measurements: Iterable[Measurement]
) -> tuple[tuple[int, float | None], tuple[int, float | None]]:
    """Distinct binaries and the seconds that building them took, of each problem's own best and of the picks."""
    took = {(m.task.problem, m.task.space, m.config): m.build_seconds for m in measurements}

    def builds(chosen: Iterable[tuple[Problem, str, Config]]) -> tuple[int, float | None]:
        seconds: dict[str, float | None] = {}
        for problem, space, config in chosen:
            key = registry.space(space).artifact_key(Task(problem, device, space), config)
            seconds.setdefault(key, took.get((problem, space, config)))
        known = [s for s in seconds.values() if s is not None]
        return len(seconds), sum(known) if len(known) == len(seconds) else None

    picks = tuple(picks)
    own = builds((p.problem, p.space, p.own) for p in picks)
    return own, builds((p.problem, p.space, p.config) for p in picks)


def _seconds(seconds: float | None) -> str:
    return "seconds not recorded" if seconds is None else f"{seconds:.1f} s"
