"""Measure a table again, after an upgrade or on another GPU of its model, and repair what no longer holds."""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

from gemmtune.engine.campaign.replayed_backend import completed
from gemmtune.engine.campaign.result import read_problems
from gemmtune.engine.execution.hosts import LOCAL, Hosts
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.processes.process_pool import Notify, log_notice
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.table import Choice, RangeRow, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.scheduling.scheduler import Scheduler
from gemmtune.engine.scheduling.task_search import TaskSearch, exhaustive_search
from gemmtune.engine.scheduling.withdrawn import repeated
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.search.enumeration import membership
from gemmtune.engine.store.database import Database
from gemmtune.engine.tables.loss_limits import RangeLimits
from gemmtune.engine.tables.ranges import build_ranges, loss_at
from gemmtune.engine.tables.ranking import Ranking, rank
from gemmtune.engine.tables.rows import build_table
from gemmtune.engine.tables.table_file import require_device

WORST = 0.02
"""Loss against the best contender, a fraction, at which a choice still holds: the spread across GPUs of one model."""


@dataclass(frozen=True, slots=True)
class Check:
    """A choice of the table, measured again at one problem."""

    problem: Workload
    """GEMM at which it was measured."""
    choice: Choice
    """Choice that the table runs there, with its time then."""
    time_ns: float | None
    """Time of the choice now; None where it no longer works."""
    loss: float | None
    """Score now over that of the choice that would ship now, minus 1; None where it no longer works."""

    @property
    def holds(self) -> bool:
        """Whether the choice works and loses at most WORST."""
        return self.loss is not None and self.loss <= WORST


@dataclass(frozen=True, slots=True)
class CheckedRange:
    """A range of the table, measured again."""

    row: RangeRow
    """Range as the table has it."""
    checks: tuple[Check, ...]
    """Checks of the range's choice, one per m that was measured again."""

    @property
    def holds(self) -> bool:
        """Whether the choice holds at each m that was measured, and one was."""
        return bool(self.checks) and all(check.holds for check in self.checks)


@dataclass(frozen=True, slots=True)
class Verified:
    """A table after it was measured again."""

    rows: tuple[Check, ...]
    """Checks of the rows' first choices, in the table's order."""
    ranges: tuple[CheckedRange, ...]
    """Checks of the ranges, in the table's order."""
    repaired: Table
    """Table with the times of now. A row that does not hold has its best contender. If a range of a GEMM does not hold,
    the GEMM's ranges are rebuilt from what was measured now; without probes, only those that hold are kept."""

    @property
    def holds(self) -> bool:
        """Whether every row and every range holds."""
        return all(row.holds for row in self.rows) and all(each.holds for each in self.ranges)


def open_executor(
    table: Table,
    *,
    landscapes: Sequence[Landscape] = (),
    builders: int | None = None,
    cluster: str = LOCAL,
    ray_address: str | None = None,
    notify: Notify = log_notice,
) -> Executor:
    """Open the executor that measures a table again.

    Args:
        table: the table to verify.
        landscapes: landscapes to answer from; without any, the hosts' GPUs measure.
        builders: builder processes; by default one per core that feeds no GPU.
        cluster: local for this machine, ray, or ray://HOST:PORT.
        ray_address: the cluster that `ray` stands for; by default one that runs here, or a new one of this machine.
        notify: called with lines for a person.

    Raises:
        DeviceError: the hosts have no GPU, or no GPU of the table's model.
        UsageError: the fleet is unknown or cannot be reached, or the table is batch-invariant.
        ToolchainMissing: Ray is not installed.
    """
    if table.batch_invariant:
        raise UsageError("rows are repaired one by one, and those of a batch-invariant table go together: tune again")
    if landscapes:
        return ReplayExecutor(completed(landscapes, ["triton_mm"], table.device))
    hosts = Hosts(cluster, ray_address, notify)
    device = hosts.require_device("verify", table.device, way_out="; --replay answers from landscapes")
    require_device(table, device)
    spaces = tuple(dict.fromkeys(space for _, space, _ in _contenders(table)))
    protocol = registry.objective(table.objective).protocol
    return hosts.executor(device)(spaces, protocol_name=protocol, builders=builders, notify=notify)


def verify(
    table: Table, margin: float, executor: Executor, database: Database, callbacks: Sequence[Callback]
) -> Verified:
    """Measure the contenders of every row and range, and check whether the table's choices still hold.

    Args:
        table: the table to verify.
        margin: lead over the baseline that a row needs to ship anything else, as a fraction.
        executor: from `open_executor`.
        database: keeps the measurements.
        callbacks: follow the campaign.
    """
    objective = registry.objective(table.objective)
    searches = _searches(table, objective)
    repeated(searches, lambda: Scheduler(searches, executor, database, objective, callbacks).run())
    tasks: dict[Workload, list[Task]] = {}
    for search in searches:
        tasks.setdefault(search.task.problem, []).append(search.task)
    held = list(read_problems(tasks.values(), executor, database))
    measurements = (m for known, _ in held for found in known.values() for m in found.values())
    finals = (final for _, finals in held for final in finals)
    rankings = rank(table.device, objective, measurements, finals=finals)
    of_problem = {ranking.problem: ranking for ranking in rankings}
    with_row = {row.problem for row in table.rows}
    checks = tuple(_check(of_problem.get(row.problem), row.problem, row.choices[0], margin) for row in table.rows)
    ranged = tuple(
        CheckedRange(row, tuple(_check(of_problem.get(p), p, row.choice, margin) for p in _sizes(row, table)))
        for row in table.ranges
    )
    rebuilt = build_table(
        table.device,
        table.objective,
        (ranking for ranking in rankings if ranking.problem in with_row),
        margin=margin,
        pinned={check.problem: (check.choice.space, check.choice.config) for check in checks if check.holds},
    )
    return Verified(checks, ranged, replace(rebuilt, ranges=_repaired_ranges(ranged, rankings, with_row, margin)))


def in_doubt(table: Table, executor: Executor, driver: str) -> Table:
    """Return the rows and ranges of a table that an upgrade put in doubt: they were made with other versions.

    Args:
        table: the table to refresh.
        executor: says which versions it measures with.
        driver: version of the NVIDIA driver that it measures with; empty where it is not known, and then not compared.
    """
    other_driver = bool(driver and table.drivers) and table.drivers != (driver,)

    def differs(problem: Workload, choice: Choice | None) -> bool:
        now = None if choice is None else executor.toolchain(Task(problem, table.device, choice.space))
        return choice is not None and now is not None and choice.toolchain != now.text

    rows = [r for r in table.rows if other_driver or any(differs(r.problem, c) for c in (r.choices[0], r.baseline))]
    doubted = {row.problem.series for row in rows}
    ranges = [r for r in table.ranges if r.problem.series in doubted or other_driver or differs(r.problem, r.choice)]
    series = {row.problem.series for row in ranges}  # a range is measured where its series has rows
    again = {row.problem for row in rows}
    rows = [row for row in table.rows if row.problem in again or row.problem.series in series]
    return replace(table, rows=tuple(rows), ranges=tuple(ranges))


def refreshed(table: Table, measured: Table, part: Table) -> Table:
    """Return a table with `measured`, the repaired table of its `part`, in the place of that part."""
    again = {row.problem for row in part.rows}
    spans = {(row.problem.series, row.first) for row in (*part.ranges, *measured.ranges)}
    rows = [*(row for row in table.rows if row.problem not in again), *measured.rows]
    ranges = [*(row for row in table.ranges if (row.problem.series, row.first) not in spans), *measured.ranges]
    return replace(
        measured,
        rows=tuple(sorted(rows, key=lambda row: row.problem.name)),
        ranges=tuple(sorted(ranges, key=lambda row: (repr(row.problem.series), row.first))),
        measured_at=max(table.measured_at, measured.measured_at),
        drivers=tuple(sorted({*measured.drivers, *(table.drivers if len(part.rows) < len(table.rows) else ())})),
    )


def _searches(table: Table, objective: Objective) -> list[TaskSearch]:
    """Return a search per task over its configs in the table: choices, tie band, ranges' choices, the baseline."""
    contenders: dict[Task, dict[Config, None]] = {}
    for problem, name, config in _contenders(table):
        contenders.setdefault(Task(problem, table.device, name), {})[config] = None
    spaces = {name: registry.space(name) for name in dict.fromkeys(task.space for task in contenders)}
    found = []
    for task, configs in contenders.items():
        feasible = list(filter(membership(spaces[task.space], task), configs))
        if feasible:
            found.append(exhaustive_search(task, spaces[task.space], feasible, max(1, len(objective.parts))))
    return found


def _repaired_ranges(
    ranged: Sequence[CheckedRange], rankings: Sequence[Ranking], with_row: Set[Workload], margin: float
) -> tuple[RangeRow, ...]:
    """Return the ranges that hold, and rebuilt ranges of the GEMMs where one does not and probes were measured.

    At an m without a row only the range's choice and the baseline were measured.
    """
    probed = {each.row.problem.series for each in ranged if each.row.probed}
    broken = probed & {each.row.problem.series for each in ranged if not each.holds}
    again = [ranking for ranking in rankings if ranking.problem.series in broken]
    interior = {ranking.problem for ranking in again} - with_row
    made = build_ranges(again, RangeLimits(WORST), margin=margin, interior=interior)
    rebuilt = {row.problem.series for row in made}
    kept = (each.row for each in ranged if each.holds and each.row.problem.series not in rebuilt)
    return tuple(sorted((*kept, *made), key=lambda row: (repr(row.problem.series), row.first)))


def _contenders(table: Table) -> Iterator[tuple[Workload, str, Config]]:
    """Yield the problem, space and config of everything that the table may run."""
    for row in table.rows:
        if row.baseline is not None:
            yield row.problem, row.baseline.space, row.baseline.config
        for choice in row.choices:
            yield row.problem, choice.space, choice.config
        if row.fastest is not None:
            for config in row.tie_band:
                yield row.problem, row.fastest.space, config
    baselines = {row.problem.series: row.baseline for row in table.rows}
    for ranged in table.ranges:
        for problem in _sizes(ranged, table):
            yield problem, ranged.choice.space, ranged.choice.config
            baseline = baselines[problem.series]
            if baseline is not None:
                yield problem, baseline.space, baseline.config


def _sizes(row: RangeRow, table: Table) -> Iterator[Workload]:
    """Yield the problems to measure a range at: tuned m with a row, and the probes of a GEMM with one."""
    problems = {tuned.problem for tuned in table.rows}
    tuned = (row.problem.resized(m) for m, _ in row.tuned)
    yield from (problem for problem in tuned if problem in problems)
    if row.problem.series in {each.series for each in problems}:
        yield from (row.problem.resized(m) for m, _ in row.probed)


def _check(ranking: Ranking | None, problem: Workload, choice: Choice, margin: float) -> Check:
    if ranking is None:
        return Check(problem, choice, None, None)
    now = (c.choice for c in ranking.contenders if (c.choice.space, c.choice.config) == (choice.space, choice.config))
    time_ns = next((found.time_ns for found in now), None)
    return Check(problem, choice, time_ns, loss_at(ranking, choice.space, choice.config.json, margin))
