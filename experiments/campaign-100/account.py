"""Account for a campaign: the parts of wall × cores and wall × GPUs, and the best config per problem."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean

from choose import RANGES
from rehearsal import range_of
from watch import AT_WORK, RESTS, SLEEPS, Look, Watched

from gemmtune.engine.records.final import Final
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Evidence, Measurement, Status
from gemmtune.engine.records.table import Choice, Row
from gemmtune.engine.store.database import Database
from gemmtune.engine.tables.table_file import read_table

BUILT_AHEAD = 128
"""Number of built configs per GPU from which no build starts: `_BUILT_AHEAD` of engine/execution/pipeline.py."""
UNKNOWN, ABSENT = "unknown", "absent"
_DIGITS = re.compile(r"\d[\d.,]*")


@dataclass(frozen=True)
class Resources:
    """Cores, GPUs and builders that the campaign could use."""

    cores: int
    gpus: int
    builders: int


def account(watched: Watched, out: Path, events: Path, have: Resources, truths: Mapping[str, Landscape]) -> dict:
    """Return the whole account as JSON.

    `out` is the folder of the command; `events` is the file to which it appended events.
    """
    happened = [e for e in _events(events) if watched.began <= e["seconds"] <= watched.ended + 1]
    measured = sum(e["event"] == "measured" and not e["known"] for e in happened)
    with Database.open(out / "measurements.db", read_only=True) as store:
        measurements = list(store.measurements())
        finals = store.finals()
    phases = _phases(watched, happened)
    return {
        "status": watched.status,
        "wall_seconds": round(watched.wall_seconds, 2),
        "cores": have.cores,
        "gpus": have.gpus,
        "builders": have.builders,
        "evaluations": measured,
        "search_seconds": round(_search_seconds(happened), 2),
        "phase_seconds": {name: round(end - begin, 2) for name, begin, end in phases},
        "cores_seconds": cores(watched, phases, happened, have),
        "gpus_seconds": gpus(watched, phases, happened, have, measurements, finals),
        "builds": builds(measurements),
        "outcomes": outcomes(measurements),
        "finals": len(finals),
        "problems": problems(out / "table.json", measurements, truths),
        "timeline": timeline(watched.looks),
    }


def cores(watched: Watched, phases: list, happened: list[dict], have: Resources) -> dict:
    """Return core-seconds by role, and those of idle cores by reason."""
    parts: defaultdict[str, float] = defaultdict(float)
    over = 0.0  # seconds of a compiler that has ended count once it is waited for: they may be more than there are
    for look, after in pairwise(watched.looks):
        spent = {role: seconds - look.cpu_seconds[role] for role, seconds in after.cpu_seconds.items()}
        spent["other programs"] = after.outside_seconds - look.outside_seconds
        for role, seconds in spent.items():
            parts[role] += seconds
        left = have.cores * (after.at - look.at) - sum(spent.values()) + over
        over = min(left, 0.0)
        why = _why_cores_idle(_phase(phases, after.at), _load(happened, after.at), have)
        parts[f"idle: {why}"] += max(left, 0.0)
    parts[f"idle: {UNKNOWN}"] += have.cores * (watched.ended - watched.looks[-1].at) + over
    return _parts(parts, have.cores * watched.wall_seconds)


def _why_cores_idle(phase: str, load: dict | None, have: Resources) -> str:
    if phase != "search":
        return phase
    if load is None:
        return UNKNOWN
    if load["building"] >= have.builders:
        return "every builder has a build"
    if load["queued"]:
        ahead = load["timing"] >= BUILT_AHEAD * have.gpus
        return "built far ahead of the timing" if ahead else "the driver has not handed out what is queued"
    if load["timing"]:
        return "the search waits for the timing"
    return "the search waits for the last builds" if load["building"] else "the driver alone is at work"


def gpus(
    watched: Watched,
    phases: list,
    happened: list[dict],
    have: Resources,
    measurements: Sequence[Measurement],
    finals: Sequence[Final],
) -> dict:
    """Return GPU-seconds: timed launches, other work on a job at hand, and idle time by reason."""
    parts: defaultdict[str, float] = defaultdict(float)
    busy = 0.0
    for look, after in pairwise(watched.looks):
        seconds, phase = after.at - look.at, _phase(phases, after.at)
        load = _load(happened, after.at)
        for number in range(have.gpus):
            activity = after.workers[number] if number < len(after.workers) else ABSENT
            if phase in ("search", "finals") and activity == AT_WORK:
                busy += seconds
            else:
                parts[_why_gpu_idle(phase, activity, load)] += seconds
    parts[f"idle: {UNKNOWN}"] += have.gpus * (watched.ended - watched.looks[-1].at)
    launches = launch_seconds(measurements, finals)
    parts |= launches
    parts["worker: loads, checks, operands, Python"] = max(busy - sum(launches.values()), 0.0)
    found = _parts(parts, have.gpus * watched.wall_seconds)
    kernels = watched.looks[-1].kernel_seconds
    return found | {"with_a_kernel_by_nvml": None if kernels is None else round(kernels, 2)}


def _why_gpu_idle(phase: str, activity: str, load: dict | None) -> str:
    if phase not in ("search", "finals"):
        return f"idle: {phase}"
    if activity == RESTS:
        return "worker: rests, between blocks and before second looks"
    if activity == SLEEPS:
        return "worker: rests or waits for a job, the kernel does not say which"
    if load is None:
        return f"idle: {UNKNOWN}"
    if activity == ABSENT:
        return "idle: the worker starts again"
    return "idle: waits for builds" if load["building"] else "idle: waits for the driver"


def launch_seconds(measurements: Iterable[Measurement], finals: Iterable[Final]) -> dict[str, float]:
    """Return the seconds of timed launches, and of the vendor kernel's launches beside them.

    The vendor kernel counts one launch per sample, at its reference level.
    """
    found = {"timed launches: race": 0.0, "timed launches: finals": 0.0, "the vendor's launches beside them": 0.0}
    measured = [m for m in measurements if m.evidence is Evidence.MEASURED]
    timed = [("race", m.samples_ns, 1, m.estimate, m.drift) for m in measured]
    timed += [("finals", f.samples_ns, f.run, f.estimate, 1.0) for final in finals for f in final.finalists]
    for where, samples_ns, run, estimate, drift in timed:
        found[f"timed launches: {where}"] += sum(samples_ns) * run / 1e9
        if estimate is not None and estimate.level is not None:
            found["the vendor's launches beside them"] += len(samples_ns) * estimate.level.time_ns * drift / 1e9
    return found


def _parts(parts: Mapping[str, float], total: float) -> dict:
    named = sum(seconds for name, seconds in parts.items() if name != f"idle: {UNKNOWN}")
    return {
        "total": round(total, 2),
        "named": round(named / total, 4) if total else None,
        "parts": {name: round(seconds, 2) for name, seconds in sorted(parts.items()) if round(seconds, 2)},
    }


def _events(path: Path) -> list[dict]:
    if not path.exists():
        return []
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [event | {"seconds": datetime.fromisoformat(event["at"]).timestamp()} for event in found]


def _phases(watched: Watched, happened: Sequence[dict]) -> list[tuple[str, float, float]]:
    """Return name, begin and end of each phase, from the start of the command to its end."""

    def when(event: str, default: float, which: Callable = min) -> float:
        return which((e["seconds"] for e in happened if e["event"] == event), default=default)

    began = when("began", watched.ended)
    first = max(when("measured", began), began)
    searched = max(when("ended", first, max), first)
    settled = max(when("final", searched, max), searched)
    marks = (watched.began, began, first, searched, settled, watched.ended)
    names = (
        "start: imports, spaces enumerated",
        "start: processes, the first build",
        "search",
        "finals",
        "end: table, exports, processes ended",
    )
    return [(name, *ends) for name, ends in zip(names, pairwise(marks), strict=True)]


def _phase(phases: list[tuple[str, float, float]], at: float) -> str:
    return next((name for name, _, end in phases if at <= end), phases[-1][0])


def _load(happened: Sequence[dict], at: float) -> dict | None:
    """Return the executor's load, as last reported before this time."""
    loads = [e for e in happened if e["event"] == "load"]
    number = bisect_right([e["seconds"] for e in loads], at)
    return loads[number - 1] if number else None


def _search_seconds(happened: Sequence[dict]) -> float:
    ended = [e["seconds"] for e in happened if e["event"] == "ended"]
    began = [e["seconds"] for e in happened if e["event"] == "began"]
    return max(ended) - began[0] if ended and began else 0.0


def builds(measurements: Iterable[Measurement]) -> dict:
    """Return seconds of rendering and of compiling, by the builders' clocks."""
    spent = [m.build_seconds for m in measurements if m.build_seconds]
    return {
        "number": len(spent),
        "seconds": round(sum(spent), 2),
        "mean_seconds": round(sum(spent) / len(spent), 3) if spent else None,
    }


def outcomes(measurements: Iterable[Measurement]) -> dict:
    """Return evaluations by status and failures by reason, without the numbers in a reason, so that like ones match."""
    statuses, reasons, launches = Counter[str](), Counter[str](), 0
    for m in measurements:
        statuses[f"{m.task.space} {m.status}"] += 1
        launches += len(m.samples_ns)
        if m.status is not Status.OK:
            reasons[f"{m.status}: {_DIGITS.sub('#', m.reason)[:120]}"] += 1
    return {"statuses": dict(sorted(statuses.items())), "failures": dict(reasons.most_common()), "launches": launches}


def problems(table: Path, measurements: Sequence[Measurement], truths: Mapping[str, Landscape]) -> list[dict]:
    """Return a row per problem of the table: best, baseline, shipped choice, and the share of the optimum."""
    spent = Counter(m.task.problem.name for m in measurements)
    if not table.exists():
        return []
    return [_problem(row, spent[row.problem.name], truths.get(row.problem.name)) for row in read_table(table).rows]


def _problem(row: Row, evaluations: int, truth: Landscape | None) -> dict:
    fastest, baseline = row.fastest or row.choices[0], row.baseline
    triton = _of_triton(row)
    return {
        "problem": row.problem.name,
        "range": range_of(row.problem),
        "evaluations": evaluations,
        "best_us": round(fastest.time_ns / 1e3, 3),
        "best_space": fastest.space,
        "best_config": dict(fastest.config),
        "baseline_us": baseline and round(baseline.time_ns / 1e3, 3),
        "triton_us": triton and round(triton.time_ns / 1e3, 3),
        "others_us": _of_others(row),
        "ships": row.choices[0].space,
        "regret_bound": row.regret_bound and round(row.regret_bound, 4),
        "of_optimum": of_optimum(row, truth),
    }


def of_optimum(row: Row, truth: Landscape | None) -> float | None:
    """Return the true best time over the true time of the config found; 0 if nothing was found or it failed there."""
    if truth is None:
        return None
    found = _of_triton(row)
    point = truth.points.get(found.config) if found is not None else None
    return round(truth.optimum_ns / point.time_ns, 4) if point is not None and point.time_ns is not None else 0.0


def _of_triton(row: Row) -> Choice | None:
    return next((c for c in row.choices if c.space == "triton_mm"), None)


def _of_others(row: Row) -> dict[str, float]:
    """Return the best time of each space besides ATen and `triton_mm`, in µs."""
    others = [c for c in row.choices if c.space not in ("aten", "triton_mm")]
    return {c.space: round(c.time_ns / 1e3, 3) for c in reversed(others)}  # the first one of a space is its best


def timeline(looks: Sequence[Look]) -> list[dict]:
    """Return the cores in use by role, per second."""
    found: list[dict] = []
    for first, last in pairwise(looks[::10]):
        seconds = last.at - first.at
        used = {r: round((s - first.cpu_seconds[r]) / seconds, 2) for r, s in last.cpu_seconds.items()}
        found.append({"second": round(last.at - looks[0].at, 1)} | {r: s for r, s in used.items() if s})
    return found


def of_range(rows: Iterable[Mapping], name: str, over: str) -> float | None:
    """Return the geometric mean of ATen's time over another time of the same row, for a range of m."""
    ratios = [r["baseline_us"] / r[over] for r in rows if r["range"] == name and r["baseline_us"] and r.get(over)]
    return geometric_mean(ratios) if ratios else None


def lines(name: str, found: Mapping) -> list[str]:
    """Render the account as lines of text."""
    text = [
        f"{name}: {found['wall_seconds']:.1f} s (exit {found['status']}), {found['evaluations']} evaluations, "
        f"{found['finals']} finals, {len(found['problems'])} rows"
    ]
    text.append("  " + ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in found["phase_seconds"].items()))
    for kind in ("cores", "gpus"):
        spent = found[f"{kind}_seconds"]
        text.append(f"  {found[kind]} {kind} × wall = {spent['total']:.1f} s, {spent['named'] or 0:.1%} of it named:")
        for part, seconds in sorted(spent["parts"].items(), key=lambda item: -item[1]):
            text.append(f"    {seconds:>9.1f}  {seconds / spent['total']:>6.1%}  {part}")
    if found["gpus_seconds"]["with_a_kernel_by_nvml"] is not None:
        text.append(f"    {found['gpus_seconds']['with_a_kernel_by_nvml']:>9.1f}          with a kernel, by NVML")
    built = found["builds"]
    if built["number"]:
        text.append(
            f"  {built['number']} builds, {built['seconds']:.1f} s in the builders, {built['mean_seconds']} each"
        )
    text.append("  " + ", ".join(f"{number} {status}" for status, number in found["outcomes"]["statuses"].items()))
    text += [f"    {number} × {reason}" for reason, number in found["outcomes"]["failures"].items()]
    text += [f"  {line}" for line in result_lines(found["problems"])]
    return text


def result_lines(rows: Sequence[Mapping]) -> list[str]:
    """Render the results as text: speed-up over ATen by range of m, and shares of the optimum."""
    text = []
    for name in RANGES:
        best, triton = of_range(rows, name, "best_us"), of_range(rows, name, "triton_us")
        if best is not None:
            text.append(f"{name}: ATen over best {best:.4f}, over the best of triton_mm {triton or 0:.4f} (geo. means)")
        text += _space_lines([row for row in rows if row["range"] == name and row["triton_us"]])
    judged = [row for row in rows if row["of_optimum"] is not None]
    if judged:
        mean, worst = sum(r["of_optimum"] for r in judged) / len(judged), min(judged, key=lambda r: r["of_optimum"])
        text.append(
            f"of the optimum on {len(judged)} sweeps: mean {mean:.4f}, worst {worst['of_optimum']:.4f} "
            f"({worst['problem']})"
        )
    return text


def _space_lines(rows: Sequence[Mapping]) -> list[str]:
    """Render the best of each space besides ATen and `triton_mm`, relative to that of `triton_mm`."""
    behind: dict[str, list[float]] = {}
    for row in rows:
        for space, us in row.get("others_us", {}).items():  # results of before 2026-11-23 have none
            behind.setdefault(space, []).append(us / row["triton_us"])
    return [
        f"  best of {space} over the best of triton_mm: {geometric_mean(ratios):.4f} "
        f"({min(ratios):.4f} to {max(ratios):.4f}, {len(ratios)} problems)"
        for space, ratios in sorted(behind.items())
    ]
