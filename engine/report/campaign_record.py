"""Gather what a campaign found and how it got there, for a page: the table, each problem's evaluations, the run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import exp, fsum, inf, log

from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import Final
from gemmtune.engine.records.measurement import Evidence, Measurement, Status
from gemmtune.engine.records.table import Row, Table
from gemmtune.engine.records.verdict import BoardVerdict
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.report.layout import natural
from gemmtune.engine.report.progress.run import Run
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.store.database import Database

DETAILED = 200
"""Most problems whose evaluations a page looks at, those with the largest weighted time first."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation of a config, as far as a page shows it."""

    space: str
    """Space that the config belongs to."""
    config: Config
    """Config that was evaluated."""
    status: Status
    """Outcome of the evaluation."""
    reason: str
    """Reason of a failure; empty for ok."""
    score: float | None
    """Score by the table's objective; None for a failure."""
    created_at: str
    """UTC time of the evaluation, ISO 8601 with seconds."""
    clock_mhz: int | None
    """SM clock after the last launch, in MHz; None where the GPU did not report it."""
    resources: Resources | None = None
    """Registers, shared memory and spills of the kernel; None where nobody read them."""


@dataclass(frozen=True, slots=True)
class ProblemRecord:
    """One problem of a table with the evaluations behind its row."""

    row: Row
    """Row that the table ships."""
    evaluations: tuple[Evaluation, ...]
    """Evaluations in the searched spaces, in the order of the database."""
    final: Final | None
    """Last final of the problem; None if none was held."""
    optimum: float | None
    """Best score there is, from a recorded landscape; None where it is unknown."""

    @property
    def problem(self) -> Workload:
        """Problem that the row is for."""
        return self.row.problem

    @property
    def scores(self) -> list[float]:
        """Scores of the evaluations that were ok."""
        return [each.score for each in self.evaluations if each.score is not None]


@dataclass(frozen=True)
class CampaignRecord:
    """A table, and what a database and a run record say of its making."""

    table: Table
    """Table whose rows are told of, sorted by their problems' names with numbers as numbers."""
    objective: Objective
    """Objective that the table minimises."""
    problems: tuple[ProblemRecord, ...] = ()
    """Problems with their evaluations, the largest weighted time first; empty without a database."""
    run: Run | None = None
    """Record of the run; None without one."""
    boards: tuple[BoardVerdict, ...] = ()
    """Last verdict on each board that measured."""

    @cached_property
    def evidence(self) -> frozenset[Evidence]:
        """Evidence behind the rows."""
        return frozenset(row.choices[0].evidence for row in self.table.rows)

    @property
    def mean_lead(self) -> float | None:
        """Lead of what ships over the baseline, 0 where that ships: the geometric mean; None without a baseline."""
        logs = [log(row.baseline.time_ns / row.choices[0].time_ns) for row in self.table.rows if row.baseline]
        return exp(fsum(logs) / len(logs)) - 1 if logs else None

    @property
    def totals(self) -> tuple[float, float]:
        """Weighted sums of the baselines' and the shipped times, over the rows with a baseline."""
        rows = [row for row in self.table.rows if row.baseline]
        before = fsum(row.problem.weight * row.baseline.time_ns for row in rows if row.baseline)
        return before, fsum(row.problem.weight * row.choices[0].time_ns for row in rows)


def gather(
    table: Table, objective: Objective, database: Database | None = None, run: Run | None = None
) -> CampaignRecord:
    """Return the record of a table; evaluations are read for at most DETAILED problems.

    Raises:
        StoreError: the database cannot be read.
    """
    table = replace(table, rows=tuple(sorted(table.rows, key=lambda row: natural(row.problem.name))))
    rows = sorted(table.rows, key=lambda row: row.problem.weight * row.choices[0].time_ns, reverse=True)[:DETAILED]
    optima = run.optima if run else {}
    problems = () if database is None else tuple(_problem(row, table, objective, database, optima) for row in rows)
    boards = () if database is None else tuple(database.boards.verdicts().values())
    return CampaignRecord(table, objective, problems, run, boards)


def row_id(place: int) -> str:
    """Return the name in links of the row at this place of the table, from 0 on."""
    return f"row-{place + 1}"


def lead(row: Row) -> tuple[float, float, float] | None:
    """Return the row's lead with the ends of its interval; None without a baseline, or without a kernel beside it."""
    best, base = row.kernel, row.baseline
    if best is None or base is None:
        return None
    return base.time_ns / best.time_ns - 1, base.low_ns / best.high_ns - 1, base.high_ns / best.low_ns - 1


def _problem(
    row: Row, table: Table, objective: Objective, database: Database, optima: Mapping[str, float]
) -> ProblemRecord:
    kinds = {(choice.evidence, choice.protocol) for choice in row.choices}
    comparable = [
        _evaluation(m, objective)
        for m in database.measurements(row.problem, device=table.device.sku)
        if m.task.problem == row.problem and not m.task.is_baseline and (m.evidence, m.protocol) in kinds
    ]
    finals = database.finals(row.problem, table.device, row.choices[0].protocol)
    return ProblemRecord(row, tuple(comparable), finals[-1] if finals else None, optima.get(row.problem.name))


def _evaluation(m: Measurement, objective: Objective) -> Evaluation:
    score = objective.score(m) if m.status is Status.OK else None
    clock = m.after.sm_clock_mhz if m.after else None
    return Evaluation(m.task.space, m.config, m.status, m.reason, score, m.created_at, clock, m.resources)


def best_so_far(scores: Iterable[float | None]) -> list[float | None]:
    """Return the least score up to each evaluation; None before the first success."""
    best = accumulate((inf if score is None else score for score in scores), min)
    return [None if score == inf else score for score in best]


def within(problem: ProblemRecord, fraction: float) -> int:
    """Return how many evaluated configs are at most `fraction` behind the best one."""
    scores: Sequence[float] = problem.scores
    return sum(score <= min(scores) * (1 + fraction) for score in scores) if scores else 0
