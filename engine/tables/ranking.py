"""The contenders of each problem, in the order in which they deserve to run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, fields, replace

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError
from gemmtune.engine.records.final import Final, Finalist
from gemmtune.engine.records.measurement import Evidence, Measurement, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import Choice
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.statistics import FULL_COVERAGE_SAMPLES

__all__ = ["MIN_MARGIN", "SHIP_MARGIN", "Contender", "Ranking", "faster", "rank"]

MIN_MARGIN = 0.02
"""Lead a choice needs over another where an interval covers less than 95 %: the spread of one config across GPUs of
one model is 0.7 to 3.5 % (H200, 2026-11)."""

SHIP_MARGIN = 0.02
"""Lead over the baseline that is worth a kernel of one's own, by default: the same spread, for the table serves other
boards than the one that was measured."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A choice with what it is ranked by."""

    choice: Choice
    """The choice, by the times of the final where it was a finalist."""
    score: float
    """The objective's score of those times, to minimise."""
    place: int
    """Place in the final; after the last finalist's for a config that was none."""
    finalist: Finalist | None
    """What became of it in the final."""

    @property
    def order(self) -> tuple[int, float, str, str]:
        """What contenders are sorted by."""
        return self.place, self.score, self.choice.space, self.choice.config.json


@dataclass(frozen=True, slots=True)
class Ranking:
    """One problem's comparable measurements, one contender a config."""

    problem: Problem
    """The GEMM, with the heaviest weight it was measured with."""
    contenders: tuple[Contender, ...]
    """The fastest first; there is one."""
    baseline: Contender | None
    """The vendor library's."""
    final: Final | None
    """The last final of the problem by the objective's protocol."""

    @property
    def fastest(self) -> Contender:
        """The first contender."""
        return self.contenders[0]

    @property
    def settled(self) -> bool:
        """Whether the fastest is the leader of the final."""
        return self.final is not None and self.fastest.finalist is self.final.leader

    def beats(self, one: Contender, other: Contender) -> bool:
        """Whether one is faster than the other beyond the noise.

        The leader of the final beats a finalist that the tie band leaves out; else the intervals say it.
        """
        if self.settled and one is self.fastest and other.finalist is not None:
            return other.finalist.behind[0] > 0
        return faster(one.choice, other.choice)

    def may_ship(self, contender: Contender, margin: float) -> bool:
        """Whether it is the baseline, or beats it beyond the noise and by the margin."""
        if self.baseline is None or contender is self.baseline:
            return True
        ahead = self.baseline.choice.time_ns >= contender.choice.time_ns * (1 + margin)
        return ahead and self.beats(contender, self.baseline)


def faster(one: Choice, other: Choice) -> bool:
    """Whether the interval of one lies below the other's.

    Where fewer than FULL_COVERAGE_SAMPLES samples stand behind one of the two, it must also lead by MIN_MARGIN.
    """
    apart = one.high_ns < other.low_ns
    if min(one.samples, other.samples) < FULL_COVERAGE_SAMPLES:
        return apart and other.time_ns >= one.time_ns * (1 + MIN_MARGIN)
    return apart


def rank(
    device: Device,
    objective: Objective,
    measurements: Iterable[Measurement],
    baseline_space: str = "aten",
    *,
    finals: Iterable[Final] = (),
) -> tuple[Ranking, ...]:
    """One ranking a problem that has an ok measurement, sorted by the problem's name.

    Contenders are ranked by the objective's score, then by space and the config's JSON. The last of the `finals` of a
    problem on this device by the objective's protocol comes before all that: its finalists rank first and in its order,
    by the times of the final instead of those of their measurements.

    Only comparable numbers are ranked: replayed measurements are left out where the problem has been measured, and
    estimates where it has been measured or replayed; measured ones of a protocol other than the objective's are left
    out; of one config measured more than once the run with the most samples counts, then the latest. A config that gave
    a wrong result on the problem once, or that any of its finals refuted, is out for good. The order of `measurements`
    does not matter.

    Raises:
        DeviceError: a measurement was made on another device; the message names both.
    """
    groups: defaultdict[Problem, list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        _check_device(device, measurement.task.device)
        groups[measurement.task.problem].append(measurement)
    held: defaultdict[Problem, list[Final]] = defaultdict(list)
    for final in finals:
        if final.device == device:
            held[final.problem].append(final)
    rankings = (_ranking(group, held[problem], objective, baseline_space) for problem, group in groups.items())
    return tuple(sorted((r for r in rankings if r is not None), key=lambda r: (r.problem.name, repr(r.problem))))


def _ranking(
    group: Sequence[Measurement], finals: Sequence[Final], objective: Objective, baseline_space: str
) -> Ranking | None:
    final = next((f for f in reversed(finals) if f.protocol == objective.protocol), None)
    refuted = {(out.task.space, out.config) for f in finals for out in f.failed}
    found = (_contender(m, objective, final) for m in _comparable(group, objective, refuted))
    contenders = tuple(sorted(found, key=lambda contender: contender.order))
    if not contenders:
        return None
    return Ranking(
        problem=max((m.task.problem for m in group), key=lambda p: p.weight),
        contenders=contenders,
        baseline=next((c for c in contenders if c.choice.space == baseline_space), None),
        final=final,
    )


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


def _contender(m: Measurement, objective: Objective, final: Final | None) -> Contender:
    place, finalist = _seat(m, final)
    if finalist is not None:
        m = replace(m, estimate=finalist.estimate, samples_ns=finalist.samples_ns)
    assert m.estimate is not None, f"{m.task.key} {m.config} is ok and has no estimate"
    choice = Choice(
        space=m.task.space,
        config=m.config,
        time_ns=m.estimate.time_ns,
        low_ns=m.estimate.low_ns,
        high_ns=m.estimate.high_ns,
        samples=len(m.samples_ns),
        evidence=m.evidence,
        toolchain=m.toolchain.text,
        protocol=m.protocol,
    )
    return Contender(choice, objective.score(m), place, finalist)


def _seat(m: Measurement, final: Final | None) -> tuple[int, Finalist | None]:
    """The place in the final of what was measured, the same build of the same config, and what became of it there."""
    finalists = final.finalists if final is not None and m.evidence is Evidence.MEASURED else ()
    for place, finalist in enumerate(finalists):
        if (finalist.task.space, finalist.config, finalist.toolchain) == (m.task.space, m.config, m.toolchain):
            return place, finalist
    return len(finalists), None


def _check_device(expected: Device, found: Device) -> None:
    if found == expected:
        return
    differing = [f.name for f in fields(Device) if f.compare and getattr(found, f.name) != getattr(expected, f.name)]
    field = "sku" if "sku" in differing else differing[0]
    raise DeviceError(
        f"a measurement was made on {found.name} ({field}={getattr(found, field)!r}), the table is for "
        f"{expected.name} ({field}={getattr(expected, field)!r}): build one table a device"
    )
