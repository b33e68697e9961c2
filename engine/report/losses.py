"""Losses of sharing configs, between problems and over ranges of m, in the summary of a campaign."""

from collections.abc import Sequence
from statistics import fmean

from gemmtune.engine.report.layout import Report, count, json_fields
from gemmtune.engine.tables.portfolio import Portfolio
from gemmtune.engine.tables.ranges import RangesReport, SizeLoss


def portfolio_report(portfolio: Portfolio) -> Report:
    """Report a portfolio beside the table that gives each problem its own best config."""
    picks = portfolio.picks
    if not picks:
        return Report({"configs": 0}, ["portfolio: the baseline serves every problem, nothing is compiled"])
    before, after = (
        len({(pick.space, pick.problem.family, config) for pick, config in chosen})
        for chosen in ([(pick, pick.own) for pick in picks], [(pick, pick.config) for pick in picks])
    )
    record = {
        "worst_allowed": portfolio.limits.worst,
        "mean_allowed": portfolio.limits.mean,
        "configs_before": before,
        "configs": after,
        "worst_loss": max(pick.loss for pick in picks),
        "worst_bound": max(pick.bound for pick in picks),
        "mean_loss": fmean((pick.loss for pick in picks), weights=[pick.problem.weight for pick in picks]),
        "picks": [json_fields(pick, "problem", "space", "config", "own", "loss", "bound") for pick in picks],
    }
    text = (
        f"portfolio: {count(after, 'config')} for {count(len(picks), 'choice')} instead of {before}; "
        f"loss {record['worst_loss']:.2%} at worst (upper end of the intervals {record['worst_bound']:.2%}), "
        f"{record['mean_loss']:.2%} in the weighted mean"
    )
    return Report(record, [text])


def ranges_text(report: RangesReport) -> str:
    """Return a line each on the tuned, probed and held-out sizes."""
    if not report.ranges:
        return "ranges: none, for no problem was tuned at two sizes or more"
    size = report.tuned[0].problem.range_size if report.tuned else "size"
    lines = [f"ranges of {size}: {count(report.ranges, 'range')}; {_line(report.tuned, f'tuned {size}')}"]
    if report.probed:
        lines.append(f"  {_line(report.probed, f'probed {size}')}, between tuned ones")
    if report.held_out:
        lines.append(f"  {_line(report.held_out, f'held-out {size}')}")
    return "\n".join(lines)


def ranges_json(report: RangesReport) -> dict[str, object]:
    """Return the losses at each size for programs."""
    return json_fields(report, "ranges", "tuned", "probed", "held_out")


def _line(losses: Sequence[SizeLoss], sizes: str) -> str:
    known = [each.loss for each in losses if each.loss is not None]
    outside = sum(not each.in_range for each in losses)
    notes = [f"{outside} outside of every range"] * (outside > 0)
    notes += [f"{len(losses) - len(known)} not measured"] * (len(known) < len(losses))
    if not known:
        return f"loss unknown at {len(losses)} {sizes}"
    noted = f" ({', '.join(notes)})" if notes else ""
    return f"loss {max(known):.2%} at worst, {fmean(known):.2%} in the mean at {len(losses)} {sizes}{noted}"
