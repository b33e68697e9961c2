"""Portfolio in the summary of a campaign: configs and compile time saved, and time lost."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import Report, count, json_fields
from gemmtune.engine.seams import registry
from gemmtune.engine.tables.portfolio import Portfolio, family

__all__ = ["portfolio_report"]

_Chosen = tuple[Problem, str, Config]
"""A problem with its space and config."""


def portfolio_report(portfolio: Portfolio, device: Device, measurements: Iterable[Measurement]) -> Report:
    """Report a portfolio beside the table that gives each problem its own best config.

    Args:
        portfolio: picks with their losses.
        device: GPU of the table.
        measurements: measurements of the picks and of each problem's own best; build seconds may be missing.
    """
    picks = portfolio.picks
    chosen: list[_Chosen] = [(p.problem, p.space, p.config) for p in picks]
    own: list[_Chosen] = [(p.problem, p.space, p.own) for p in picks]
    build_seconds = {(m.task.problem, m.task.space, m.config): m.build_seconds for m in measurements}
    kernels, seconds = _builds(chosen, device, build_seconds)
    kernels_before, seconds_before = _builds(own, device, build_seconds)
    configs, configs_before = (len({(s, family(p), config) for p, s, config in of}) for of in (chosen, own))
    worst_loss, worst_bound = max((p.loss for p in picks), default=0.0), max((p.bound for p in picks), default=0.0)
    mean_loss = fmean((p.loss for p in picks), weights=(p.problem.weight for p in picks)) if picks else 0.0
    text = (
        f"portfolio: {count(configs, 'config')} for {count(len(picks), 'choice')} instead of {configs_before}; "
        f"loss {worst_loss:.2%} at worst (upper end of the intervals {worst_bound:.2%}), "
        f"{mean_loss:.2%} in the weighted mean\n"
        f"to compile: {count(kernels, 'kernel')}, {_seconds(seconds)}, "
        f"instead of {kernels_before}, {_seconds(seconds_before)}"
    )
    record = {
        "worst_allowed": portfolio.limits.worst,
        "mean_allowed": portfolio.limits.mean,
        "configs_before": configs_before,
        "configs": configs,
        "worst_loss": worst_loss,
        "worst_bound": worst_bound,
        "mean_loss": mean_loss,
        "kernels_before": kernels_before,
        "kernels": kernels,
        "build_seconds_before": seconds_before,
        "build_seconds": seconds,
        "picks": [json_fields(p, "problem", "space", "config", "own", "loss", "bound") for p in picks],
    }
    nothing = "portfolio: the vendor library serves every problem, nothing is compiled"
    return Report(record, [text if picks else nothing])


def _builds(
    chosen: Iterable[_Chosen], device: Device, build_seconds: dict[_Chosen, float | None]
) -> tuple[int, float | None]:
    """Return the number of kernels and their build time, s; None if a build's time was not recorded."""
    seconds: dict[str, float | None] = {}
    for problem, space, config in chosen:
        key = registry.space(space).artifact_key(Task(problem, device, space), config)
        seconds.setdefault(key, build_seconds.get((problem, space, config)))
    known = [s for s in seconds.values() if s is not None]
    return len(seconds), sum(known) if len(known) == len(seconds) else None


def _seconds(seconds: float | None) -> str:
    return "seconds not recorded" if seconds is None else f"{seconds:.1f} s"
