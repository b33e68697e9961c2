"""From measurements to rows: what production should run for each problem."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from gemmtune.engine.measure.statistics import FULL_COVERAGE_SAMPLES, median_interval
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError
from gemmtune.engine.records.measurement import Evidence, Measurement, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.seams.objective import Objective

__all__ = ["MIN_MARGIN", "build_table", "unserved"]

MIN_MARGIN = 0.02
"""Lead a choice needs over another where an interval covers less than 95 %: the spread of one config across GPUs of
one model is 0.7 to 3.5 % (H200, 2026-11)."""


def build_table(
    device: Device,
    objective: Objective,
    objective_name: str,
    measurements: Iterable[Measurement],
    baseline_space: str = "aten",
    *,
    choices: int = 3,
) -> Table:
    """One row a problem that has an ok measurement, with at most `choices` choices; `unserved` names the others.

    Choices are ranked by the objective's score, then by space and the config's JSON. The fastest comes first only
    if it beats the baseline beyond the noise: its interval lies below the baseline's, and where fewer than
    FULL_COVERAGE_SAMPLES samples stand behind one of the two, it also leads by MIN_MARGIN. Otherwise the baseline
    comes first. The tie band holds the configs of the fastest's own space that it does not beat beyond the noise,
    itself first.

    Only comparable numbers are ranked: estimates are left out; replayed measurements are left out where the problem
    has been measured; measured ones of a protocol other than the objective's are left out; of one config measured
    more than once the run with the most samples counts, then the latest. A config that gave a wrong result on the
    problem once is out for good. The order of `measurements` does not matter.

    Raises:
        DeviceError: a measurement was made on another device; the message names both.
        ValueError: `choices` is below 1.
    """
    if choices < 1:
        raise ValueError(f"choices={choices} is below 1")
    groups: defaultdict[Problem, list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        _check_device(device, measurement.task.device)
        groups[measurement.task.problem].append(measurement)
    rows = (_row(group, objective, baseline_space, choices) for group in groups.values())
    return Table(device, tuple(sorted((r for r in rows if r is not None), key=_row_order)), objective_name)


def unserved(table: Table, measurements: Iterable[Measurement]) -> tuple[Problem, ...]:
    """The problems that were tried and have no row, because nothing that may be ranked was ok; sorted by name."""
    served = {row.problem for row in table.rows}
    return tuple(sorted({m.task.problem for m in measurements} - served, key=lambda p: (p.name, repr(p))))


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A choice with the score it is ranked by."""

    score: float
    choice: Choice

    @property
    def order(self) -> tuple[float, str, str]:
        return self.score, self.choice.space, self.choice.config.json


def _row(group: Sequence[Measurement], objective: Objective, baseline_space: str, limit: int) -> Row | None:
    ranked = sorted((_rank(m, objective) for m in _comparable(group, objective)), key=lambda r: r.order)
    if not ranked:
        return None
    ordered = [r.choice for r in ranked]
    fastest = ordered[0]
    baseline = next((c for c in ordered if c.space == baseline_space), None)
    if baseline is not None and not _beats(fastest, baseline):
        ordered = [baseline, *(c for c in ordered if c is not baseline)]
    return Row(
        problem=max((m.task.problem for m in group), key=lambda p: p.weight),
        choices=tuple(ordered[:limit]),
        baseline=baseline,
        margin=baseline.time_ns / fastest.time_ns - 1 if baseline is not None else 0.0,
        tie_band=tuple(
            r.choice.config for r in ranked if r.choice.space == fastest.space and not _beats(fastest, r.choice)
        ),
    )


def _comparable(group: Sequence[Measurement], objective: Objective) -> list[Measurement]:
    """The ok measurements that may be ranked against each other, one a config."""
    wrong = {_key(m) for m in group if m.status is Status.WRONG_RESULT}
    ok = [m for m in group if m.status is Status.OK and _key(m) not in wrong]
    measured = [m for m in ok if m.evidence is Evidence.MEASURED and m.protocol == objective.protocol]
    best: dict[tuple[str, Config], Measurement] = {}
    for m in sorted(measured or [m for m in ok if m.evidence is Evidence.REPLAYED], key=_weight_of_evidence):
        best[_key(m)] = m
    return list(best.values())


def _key(measurement: Measurement) -> tuple[str, Config]:
    return measurement.task.space, measurement.config


def _weight_of_evidence(m: Measurement) -> tuple[int, str, str, tuple[float, ...]]:
    """More samples first, then newer; the rest only makes the order total."""
    return len(m.samples_ns), m.created_at, m.worker, m.samples_ns


def _rank(m: Measurement, objective: Objective) -> _Ranked:
    time_ns, low_ns, high_ns = median_interval(m.samples_ns)
    choice = Choice(
        space=m.task.space,
        config=m.config,
        time_ns=time_ns,
        low_ns=low_ns,
        high_ns=high_ns,
        samples=len(m.samples_ns),
        evidence=m.evidence,
        toolchain=m.toolchain.text,
        protocol=m.protocol,
    )
    return _Ranked(objective.score(m), choice)


def _beats(choice: Choice, other: Choice) -> bool:
    """Whether `choice` is faster than `other` beyond the noise."""
    apart = choice.high_ns < other.low_ns
    if min(choice.samples, other.samples) < FULL_COVERAGE_SAMPLES:
        return apart and other.time_ns >= choice.time_ns * (1 + MIN_MARGIN)
    return apart


def _row_order(row: Row) -> tuple[str, str]:
    return row.problem.name, repr(row.problem)


def _check_device(expected: Device, found: Device) -> None:
    if found == expected:
        return
    differing = [f.name for f in fields(Device) if f.compare and getattr(found, f.name) != getattr(expected, f.name)]
    field = "sku" if "sku" in differing else differing[0]
    raise DeviceError(
        f"a measurement was made on {found.name} ({field}={getattr(found, field)!r}), the table is for "
        f"{expected.name} ({field}={getattr(expected, field)!r}): build one table a device"
    )
