"""Losses of sharing configs, between problems and over ranges of m, in the summary of a campaign."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.report.layout import Report, count, json_fields
from gemmtune.engine.seams.space import Space
from gemmtune.engine.tables.portfolio import Portfolio
from gemmtune.engine.tables.ranges import RangesReport, SizeLoss

__all__ = ["portfolio_report", "ranges_json", "ranges_text"]

_Chosen = tuple[Workload, str, Config]
"""A problem with its space and config."""


def portfolio_report(
    portfolio: Portfolio, device: Device, spaces: Mapping[str, Space], measurements: Iterable[Measurement]
) -> Report:
    """Report a portfolio beside the table that gives each problem its own best config.

    `measurements` are those of the picks and of each problem's own best; build seconds may be missing.
    """
    picks = portfolio.picks
    chosen: list[_Chosen] = [(p.problem, p.space, p.config) for p in picks]
    own: list[_Chosen] = [(p.problem, p.space, p.own) for p in picks]
    build_seconds = {(m.task.problem, m.task.space, m.config): m.build_seconds for m in measurements}
    kernels, seconds = _builds(chosen, device, spaces, build_seconds)
    kernels_before, seconds_before = _builds(own, device, spaces, build_seconds)
    configs, configs_before = (len({(s, p.family, config) for p, s, config in of}) for of in (chosen, own))
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
    nothing = "portfolio: the baseline serves every problem, nothing is compiled"
    return Report(record, [text if picks else nothing])


def ranges_text(report: RangesReport, *, buckets: bool) -> str:
    """Return a line each on the tuned, probed and held-out sizes; `buckets` has powers of two as edges of ranges."""
    if not report.ranges:
        return "ranges: none, for no problem was tuned at two sizes or more"
    size = report.tuned[0].problem.range_size if report.tuned else "size"
    way, other = ("powers of two", "measured") if buckets else ("measured", "powers of two")
    lines = [f"ranges of {size} ({way} edges): {count(report.ranges, 'range')}; {_line(report.tuned, f'tuned {size}')}"]
    if report.probed:
        lines.append(f"  {_line(report.probed, f'probed {size}')}, between tuned ones")
    if report.held_out:
        lines.append(
            f"  {_line(report.held_out, f'held-out {size}')}; with {other} edges {_line(report.otherwise, '')}"
        )
    return "\n".join(lines)


def ranges_json(report: RangesReport) -> dict[str, object]:
    """Return the losses at each size for programs."""
    return {**json_fields(report, "ranges", "tuned", "probed", "held_out"), "held_out_otherwise": report.otherwise}


def _builds(
    chosen: Iterable[_Chosen],
    device: Device,
    spaces: Mapping[str, Space],
    build_seconds: Mapping[_Chosen, float | None],
) -> tuple[int, float | None]:
    """Return the number of kernels and their build time, s; None if a build's time was not recorded."""
    seconds: dict[str, float | None] = {}
    for problem, space, config in chosen:
        key = spaces[space].artifact_key(Task(problem, device, space), config)
        seconds.setdefault(key, build_seconds.get((problem, space, config)))
    known = [s for s in seconds.values() if s is not None]
    return len(seconds), sum(known) if len(known) == len(seconds) else None


def _seconds(seconds: float | None) -> str:
    return "seconds not recorded" if seconds is None else f"{seconds:.1f} s"


def _line(losses: Sequence[SizeLoss], sizes: str) -> str:
    known = [each.loss for each in losses if each.loss is not None]
    outside = sum(not each.in_range for each in losses)
    notes = [f"{outside} outside of every range"] * (outside > 0)
    notes += [f"{len(losses) - len(known)} not measured"] * (len(known) < len(losses))
    where = f" at {len(losses)} {sizes}" if sizes else ""
    if not known:
        return f"loss unknown{where}"
    noted = f" ({', '.join(notes)})" if notes else ""
    return f"loss {max(known):.2%} at worst, {fmean(known):.2%} in the mean{where}{noted}"
