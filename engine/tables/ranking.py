"""Rankings: the comparable measurements of each problem, best first."""

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, fields, replace

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError
from gemmtune.engine.records.final import Final, Finalist
from gemmtune.engine.records.measurement import Evidence, Measurement, Status
from gemmtune.engine.records.table import Choice
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.statistics import FULL_COVERAGE_SAMPLES

MIN_MARGIN = 0.02
"""Lead over another choice that is needed where an interval covers less than 95 %, as a fraction. It equals the spread
of one config across GPUs of one model, see `experiments/measurement`."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A choice and the numbers that rank it."""

    choice: Choice
    """Choice, with its times in the final if it was a finalist."""
    score: float
    """Objective's score of those times, to minimise."""
    rank: int
    """Rank in the final from 0 on; the number of finalists for a config outside the final."""
    finalist: Finalist | None
    """Result in the final; None for a config outside the final."""
    bits: str = ""
    """Digest of the bits of rows, see `Estimate.bits`."""

    @property
    def order(self) -> tuple[int, float, str, str]:
        """Sort key of contenders, best first."""
        return self.rank, self.score, self.choice.space, self.choice.config.json


@dataclass(frozen=True, slots=True)
class Ranking:
    """Comparable measurements of one problem, one contender per config."""

    problem: Workload
    """Problem, with the largest weight it was measured with."""
    contenders: tuple[Contender, ...]
    """Contenders, fastest first; at least one."""
    baseline: Contender | None
    """Contender of the vendor library."""
    final: Final | None
    """Last final of the problem by the objective's protocol."""
    measured_at: str = ""
    """UTC date of the newest measurement or final of the contenders; empty if none was measured on a GPU."""
    drivers: tuple[str, ...] = ()
    """Versions of the NVIDIA driver that the contenders were measured with, sorted; those that are known."""

    @property
    def fastest(self) -> Contender:
        """First of the contenders."""
        return self.contenders[0]

    @property
    def led_by_final(self) -> bool:
        """Whether the fastest contender is the leader of the final."""
        return self.final is not None and self.fastest.finalist is self.final.leader

    def of_space(self, space: str) -> list[Contender]:
        """Return the contenders of one space, fastest first."""
        return [contender for contender in self.contenders if contender.choice.space == space]

    def beats(self, one: Contender, other: Contender) -> bool:
        """Return whether `one` is faster than `other` beyond the noise.

        The leader of the final beats every finalist outside its tie band; `faster` judges all other pairs.
        """
        if self.led_by_final and one is self.fastest and other.finalist is not None:
            return other.finalist.behind[0] > 0
        return faster(one.choice, other.choice)

    def may_ship(self, contender: Contender, margin: float) -> bool:
        """Return whether a contender is the baseline, or beats it beyond the noise and by `margin`, a fraction."""
        if self.baseline is None or contender is self.baseline:
            return True
        ahead = self.baseline.choice.time_ns >= contender.choice.time_ns * (1 + margin)
        return ahead and self.beats(contender, self.baseline)


def faster(one: Choice, other: Choice) -> bool:
    """Return whether the interval of `one` lies below that of `other`.

    Where one of them has fewer than FULL_COVERAGE_SAMPLES samples, `one` must also lead by MIN_MARGIN.
    """
    apart = one.high_ns < other.low_ns
    if min(one.samples, other.samples) < FULL_COVERAGE_SAMPLES:
        return apart and other.time_ns >= one.time_ns * (1 + MIN_MARGIN)
    return apart


def rank(
    device: Device, objective: Objective, measurements: Iterable[Measurement], *, finals: Iterable[Final] = ()
) -> tuple[Ranking, ...]:
    """Rank the contenders of every problem that has an ok measurement.

    Only comparable numbers are ranked:

    - replayed measurements count only where none was measured, estimates only where none was measured or replayed;
    - measured ones count only with the objective's protocol;
    - of one config, the run with the most samples counts, then the latest;
    - a config that gave a wrong result on the problem once, or failed before a final, is left out.

    The finalists of the last final by the objective's protocol rank first, in its order and by its times. The others
    follow by score, then by space and the config's JSON. Rankings are sorted by the problem's name. Finals of other
    devices are ignored.

    Raises:
        DeviceError: a measurement was made on another device; the message names both.
    """
    groups: defaultdict[Workload, list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        _check_device(device, measurement.task.device)
        groups[measurement.task.problem].append(measurement)
    finals_of: defaultdict[Workload, list[Final]] = defaultdict(list)
    for final in finals:
        if final.device == device:
            finals_of[final.problem].append(final)
    rankings = (_ranking(group, finals_of[problem], objective) for problem, group in groups.items())
    return tuple(sorted((r for r in rankings if r is not None), key=lambda r: r.problem.name))


def _ranking(group: Sequence[Measurement], finals: Sequence[Final], objective: Objective) -> Ranking | None:
    final = next((f for f in reversed(finals) if f.protocol == objective.protocol), None)
    failed = {(out.task.space, out.config) for f in finals for out in f.failed}
    comparable = _comparable(group, objective, failed)
    contenders = tuple(sorted((_contender(m, objective, final) for m in comparable), key=lambda c: c.order))
    times = [m.created_at for m in comparable if m.evidence is Evidence.MEASURED]
    if times and final is not None:
        times.append(final.created_at)
    if not contenders:
        return None
    return Ranking(
        problem=max((m.task.problem for m in group), key=lambda p: p.weight),
        contenders=contenders,
        baseline=next((c for c in contenders if c.choice.space == group[0].task.problem.baseline_space), None),
        final=final,
        measured_at=max(times, default="")[:10],
        drivers=tuple(sorted({m.before.driver for m in comparable if m.before is not None and m.before.driver})),
    )


def _comparable(
    group: Sequence[Measurement], objective: Objective, failed: Set[tuple[str, Config]]
) -> list[Measurement]:
    """Return the ok measurements that may be ranked against each other, one per config."""
    wrong = {_key(m) for m in group if m.status is Status.WRONG_RESULT} | failed
    ok = [m for m in group if m.status is Status.OK and _key(m) not in wrong]
    measured = [m for m in ok if m.evidence is Evidence.MEASURED and m.protocol == objective.protocol]
    replayed = [m for m in ok if m.evidence is Evidence.REPLAYED]
    estimated = [m for m in ok if m.evidence is Evidence.ESTIMATED]
    found = measured or replayed or estimated
    found.sort(key=lambda m: (len(m.samples_ns), m.created_at, m.worker, m.samples_ns))  # more samples last, then newer
    return list({_key(m): m for m in found}.values())


def _key(measurement: Measurement) -> tuple[str, Config]:
    return measurement.task.space, measurement.config


def _contender(m: Measurement, objective: Objective, final: Final | None) -> Contender:
    final_rank, finalist = _final_rank(m, final)
    bits = m.estimate.bits if m.estimate is not None else ""
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
    return Contender(choice, objective.score(m), final_rank, finalist, bits)


def _final_rank(m: Measurement, final: Final | None) -> tuple[int, Finalist | None]:
    """Return the measured build's rank and finalist record; (number of finalists, None) outside the final."""
    finalists = final.finalists if final is not None and m.evidence is Evidence.MEASURED else ()
    for number, finalist in enumerate(finalists):
        if (finalist.task.space, finalist.config, finalist.toolchain) == (m.task.space, m.config, m.toolchain):
            return number, finalist
    return len(finalists), None


def _check_device(expected: Device, found: Device) -> None:
    if found == expected:
        return
    differing = [f.name for f in fields(Device) if f.compare and getattr(found, f.name) != getattr(expected, f.name)]
    field = "sku" if "sku" in differing else differing[0]
    raise DeviceError(
        f"a measurement was made on {found.name} ({field}={getattr(found, field)!r}), the table is for "
        f"{expected.name} ({field}={getattr(expected, field)!r}): build one table per device"
    )
