"""Report of configs that were measured against the row and the baseline."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gemmtune.engine.campaign.configs.compare import Compared, Comparison, Role
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.workload import baseline_name
from gemmtune.engine.report.layout import Grid, Report, config_text, json_fields, lead_text, microseconds
from gemmtune.engine.tables.roofline import speed

_TIMES = ("time_ns", "low_ns", "high_ns", "samples")
_RATES = ("tflop_s", "gb_s", "fraction_of_peak")
_NEEDS = {"registers": "registers", "shared B": "shared_bytes", "spilled B": "spill_bytes"}
_HEADERS = ("kernel", "space", "µs", "95 % interval", "lead", "behind", "beats", "% of peak", *_NEEDS, "config")
_LEFT = ("kernel", "space", "beats", "config")


def comparison_report(device: Device, comparisons: Sequence[Comparison]) -> Report:
    """Report each kernel's time with its interval, whom it beats, what its binary needs, and its share of the peak."""
    problems: list[object] = []
    sections: list[str | Grid] = []
    for each in comparisons:
        names, records = _names(each), [_record(device, each, kernel) for kernel in each.kernels]
        problems.append({"problem": each.problem, "kernels": records})
        sections.append(f"{each.problem.name} on {device.name}: {_how(each, names)}")
        rows = [_row(names, each, *of_kernel) for of_kernel in zip(names, records, each.kernels, strict=True)]
        sections.append(Grid.of_rows(_HEADERS, rows, _LEFT))
        failed = [f"{name}: {kernel.reason}" for name, kernel in zip(names, each.kernels, strict=True) if kernel.reason]
        sections += ["\n".join(failed)] if failed else []
    baseline = baseline_name(each.problem for each in comparisons)
    sections.append(
        f"lead: over {baseline}\n"
        "behind: time over the fastest one's, by the 95 % interval of paired rounds\n"
        "beats: is faster than these beyond the noise"
    )
    return Report({"device": device.sku, "problems": problems}, sections)


def _how(comparison: Comparison, names: Sequence[str]) -> str:
    """Return which kernel is the fastest, and how the times came about."""
    timed = [(each.contender, name) for name, each in zip(names, comparison.kernels, strict=True) if each.contender]
    if not timed:
        return "no kernel gave a time"
    fastest, name = min(timed, key=lambda pair: pair[0].order)
    paired = all(contender.finalist for contender, _ in timed)
    return f"{name} is the fastest, {fastest.choice.evidence}{' in paired rounds' if paired else ''}"


def _names(comparison: Comparison) -> list[str]:
    """Return a name per kernel: own ones are numbered where there are several."""
    own = sum(each.role is Role.YOURS for each in comparison.kernels)
    baseline = baseline_name([comparison.problem])
    return [
        f"yours {number}"
        if own > 1 and each.role is Role.YOURS
        else baseline
        if each.role is Role.BASELINE
        else each.role
        for number, each in enumerate(comparison.kernels, 1)
    ]


def _record(device: Device, comparison: Comparison, kernel: Compared) -> dict[str, Any]:
    """Return the numbers of a kernel for programs."""
    choice, contender = kernel.choice, kernel.contender
    rates = speed(device, comparison.problem, choice.time_ns) if choice else None
    return {
        **json_fields(kernel, "role", "config", "reason", "lead"),
        "space": kernel.task.space,
        "evidence": kernel.measurement.evidence,
        **{name: getattr(choice, name, None) for name in _TIMES},
        "behind": contender.finalist.behind if contender and contender.finalist else None,
        "beats": [each.role for each in _beaten(comparison, kernel)],
        **{name: getattr(rates, name, None) for name in _RATES},
        **{name: getattr(kernel.measurement.resources, name, None) for name in _NEEDS.values()},
    }


def _row(
    names: Sequence[str], comparison: Comparison, name: str, record: Mapping[str, Any], kernel: Compared
) -> list[str]:
    """Return the cells of a kernel."""
    beaten = [names[comparison.kernels.index(each)] for each in _beaten(comparison, kernel)]
    share, behind = record["fraction_of_peak"], record["behind"]
    return [
        name,
        kernel.task.space,
        microseconds(record["time_ns"]),
        f"{microseconds(record['low_ns'])}–{microseconds(record['high_ns'])}" if kernel.choice else "-",
        "-" if kernel.role is Role.BASELINE else lead_text(kernel.lead),
        f"{behind[0]:.1%} to {behind[1]:.1%}" if behind and any(behind) else "-",
        ", ".join(beaten) or "-",
        "-" if share is None else f"{share:.0%}",
        *("-" if record[name] is None else str(record[name]) for name in _NEEDS.values()),
        config_text(kernel.task, kernel.config) or "-",
    ]


def _beaten(comparison: Comparison, kernel: Compared) -> Iterator[Compared]:
    """Yield the row, the best known kernel and the baseline, if a kernel beats them beyond the noise."""
    ranking, own = comparison.ranking, kernel.contender
    if ranking is None or own is None:
        return
    for other in comparison.kernels:
        if other.role is not Role.YOURS and other.contender and ranking.beats(own, other.contender):
            yield other
