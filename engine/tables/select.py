"""From measurements to rows: what production should run for each problem."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, fields

from gemmtune.engine.measure.statistics import FULL_COVERAGE_SAMPLES
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError
from gemmtune.engine.records.final import Final, Finalist
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
    finals: Iterable[Final] = (),
    choices: int = 3,
) -> Table:
    """One row a problem that has an ok measurement; `unserved` names the others.

    A row has the first `choices` choices, and behind them the best of every space that has none among those: there are
    consumers that run one space alone. Choices are ranked by the objective's score, then by space and the config's
    JSON. The fastest comes first only
    if it beats the baseline beyond the noise: its interval lies below the baseline's, and where fewer than
    FULL_COVERAGE_SAMPLES samples stand behind one of the two, it also leads by MIN_MARGIN. Otherwise the baseline
    comes first. The tie band holds the configs of the fastest's own space that it does not beat beyond the noise,
    itself first.

    The last of the `finals` of a problem on this device by the objective's protocol comes before all that: its
    finalists rank first and in its order, by the times of the final instead of those of their measurements. If its
    leader may be ranked, the fastest is its leader, the tie band is the final's, and a baseline that was a finalist is
    beaten where the final's tie band leaves it out.

    Only comparable numbers are ranked: replayed measurements are left out where the problem has been measured, and
    estimates where it has been measured or replayed; measured ones of a protocol other than the objective's are left
    out; of one config measured more than once the run with the most samples counts, then the latest. A config that gave
    a wrong result on the problem once, or that any of its finals refuted, is out for good. The order of `measurements`
    does not matter.

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
    held: defaultdict[Problem, list[Final]] = defaultdict(list)
    for final in finals:
        if final.device == device:
            held[final.problem].append(final)
    rows = (_row(group, held[problem], objective, baseline_space, choices) for problem, group in groups.items())
    return Table(device, tuple(sorted((r for r in rows if r is not None), key=_row_order)), objective_name)


def unserved(table: Table, measurements: Iterable[Measurement]) -> tuple[Problem, ...]:
    """The problems that were tried and have no row, because nothing that may be ranked was ok; sorted by name."""
    served = {row.problem for row in table.rows}
    return tuple(sorted({m.task.problem for m in measurements} - served, key=lambda p: (p.name, repr(p))))


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A choice with what it is ranked by."""

    choice: Choice
    score: float
    place: int
    """Place in the final; after the last finalist's for a config that was none."""
    finalist: Finalist | None

    @property
    def order(self) -> tuple[int, float, str, str]:
        return self.place, self.score, self.choice.space, self.choice.config.json


def _row(
    group: Sequence[Measurement], finals: Sequence[Final], objective: Objective, baseline_space: str, limit: int
) -> Row | None:
    final = next((f for f in reversed(finals) if f.protocol == objective.protocol), None)
    refuted = {(out.task.space, out.config) for f in finals for out in f.refuted}
    ranked = sorted((_rank(m, objective, final) for m in _comparable(group, objective, refuted)), key=lambda r: r.order)
    if not ranked:
        return None
    fastest = ranked[0]
    settled = final is not None and fastest.finalist is final.leader
    baseline = next((r for r in ranked if r.choice.space == baseline_space), None)
    ordered = ranked
    if baseline is not None and not _beats(fastest, baseline, settled):
        ordered = [baseline, *(r for r in ranked if r is not baseline)]
    rivals = [r for r in ranked if r.choice.space == fastest.choice.space and (r.finalist is not None or not settled)]
    return Row(
        problem=max((m.task.problem for m in group), key=lambda p: p.weight),
        choices=_kept([r.choice for r in ordered], limit),
        baseline=None if baseline is None else baseline.choice,
        margin=0.0 if baseline is None else baseline.choice.time_ns / fastest.choice.time_ns - 1,
        tie_band=tuple(r.choice.config for r in rivals if not _beats(fastest, r, settled)),
        regret_bound=final.regret_bound if final is not None and settled else None,
    )


def _kept(ordered: Sequence[Choice], limit: int) -> tuple[Choice, ...]:
    best = {choice.space: choice for choice in reversed(ordered)}
    return tuple(choice for place, choice in enumerate(ordered) if place < limit or best[choice.space] is choice)


def _comparable(
    group: Sequence[Measurement], objective: Objective, refuted: Set[tuple[str, Config]]
) -> list[Measurement]:
    """The ok measurements that may be ranked against each other, one a config."""
    wrong = {_key(m) for m in group if m.status is Status.WRONG_RESULT} | refuted
    ok = [m for m in group if m.status is Status.OK and _key(m) not in wrong]
    measured = [m for m in ok if m.evidence is Evidence.MEASURED and m.protocol == objective.protocol]
    replayed = [m for m in ok if m.evidence is Evidence.REPLAYED]
    estimated = [m for m in ok if m.evidence is Evidence.ESTIMATED]
    best: dict[tuple[str, Config], Measurement] = {}
    for m in sorted(measured or replayed or estimated, key=_weight_of_evidence):
        best[_key(m)] = m
    return list(best.values())


def _key(measurement: Measurement) -> tuple[str, Config]:
    return measurement.task.space, measurement.config


def _weight_of_evidence(m: Measurement) -> tuple[int, str, str, tuple[float, ...]]:
    """More samples first, then newer; the rest only makes the order total."""
    return len(m.samples_ns), m.created_at, m.worker, m.samples_ns


def _rank(m: Measurement, objective: Objective, final: Final | None) -> _Ranked:
    score = objective.score(m)
    place, finalist = _seat(m, final)
    estimate, samples_ns = (finalist.estimate, finalist.samples_ns) if finalist else (m.estimate, m.samples_ns)
    assert estimate is not None, f"{m.task.key} {m.config} is ok and has no estimate"
    choice = Choice(
        space=m.task.space,
        config=m.config,
        time_ns=estimate.time_ns,
        low_ns=estimate.low_ns,
        high_ns=estimate.high_ns,
        samples=len(samples_ns),
        evidence=m.evidence,
        toolchain=m.toolchain.text,
        protocol=m.protocol,
    )
    return _Ranked(choice, score, place, finalist)


def _seat(m: Measurement, final: Final | None) -> tuple[int, Finalist | None]:
    """The place in the final of what was measured, the same build of the same config, and what became of it there."""
    finalists = final.finalists if final is not None and m.evidence is Evidence.MEASURED else ()
    for place, finalist in enumerate(finalists):
        if (finalist.task.space, finalist.config, finalist.toolchain) == (m.task.space, m.config, m.toolchain):
            return place, finalist
    return len(finalists), None


def _beats(fastest: _Ranked, other: _Ranked, settled: bool) -> bool:
    """Whether the fastest is faster than the other beyond the noise; `settled` where it leads the final."""
    if settled and other.finalist is not None:
        return other.finalist.behind[0] > 0
    lead, follower = fastest.choice, other.choice
    apart = lead.high_ns < follower.low_ns
    if min(lead.samples, follower.samples) < FULL_COVERAGE_SAMPLES:
        return apart and follower.time_ns >= lead.time_ns * (1 + MIN_MARGIN)
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
