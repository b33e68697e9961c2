"""What a campaign found, read from its database one problem at a time: all of it would not fit into memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.execution.gpu_normalization import OneScale
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.final import Final
from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import RangeRow, Table
from gemmtune.engine.records.task import BASELINE_SPACE, Task
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.store.database import Database
from gemmtune.engine.tables.portfolio import Portfolio, choose
from gemmtune.engine.tables.ranges import build_ranges
from gemmtune.engine.tables.ranges_report import RangesReport, ranges_report
from gemmtune.engine.tables.ranking import Ranking, rank
from gemmtune.engine.tables.rows import build_table

__all__ = ["Finding", "Result", "read_rankings", "read_result"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a campaign found for one task."""

    problem: Problem
    """The GEMM."""
    space: str
    """The space searched."""
    config: Config | None
    """The fastest config; None when nothing was ok."""
    score: float | None
    """Its score, in the objective's unit."""
    baseline_score: float | None
    """The baseline's score on the same problem."""
    evaluations: int
    """Configs evaluated, failures included."""
    failures: Mapping[str, int]
    """Status to the number of evaluations that ended so, ok left out."""
    fraction_of_optimum: float | None
    """Recorded optimum over best found; None where the whole space is not recorded."""
    stopped_after: tuple[int, ...] = ()
    """Launches of each config that racing stopped early, as far as the database says so: older ones do not."""


@dataclass(frozen=True, slots=True)
class Result:
    """A finished campaign."""

    table: Table
    """What ships."""
    findings: tuple[Finding, ...]
    """One a task of the searched spaces, in the plan's order."""
    measurements: tuple[Measurement, ...]
    """The best of each task, or one of its failures; with a portfolio or an objective of several parts, which look at
    every one, everything the table was built from."""
    portfolio: Portfolio | None = None
    """What serves the problems in each space; None where each was given its own best."""
    ranges: RangesReport | None = None
    """What the ranges of m lose; None where there are none."""


def read_rankings(
    plan: Plan, device: Device, searches: Sequence[TaskSearch], executor: Executor, database: Database
) -> Iterator[Ranking]:
    """One a problem that has any, sorted by its name, from everything the database holds of the tasks."""
    return _Reader(plan, device, searches, executor, database).rankings()


def read_result(
    plan: Plan,
    device: Device,
    searches: Sequence[TaskSearch],
    executor: Executor,
    database: Database,
    probed: Sequence[TaskSearch] = (),
    spotted: Sequence[TaskSearch] = (),
) -> Result:
    """The table from everything the database holds of the tasks, and what the searches found.

    What was measured at probes and spots counts for the ranges alone: none has a row, a finding or a share in a
    portfolio.
    """
    reader = _Reader(plan, device, searches, executor, database)
    rankings = reader.rankings()
    portfolio = ranges = None
    rows: tuple[RangeRow, ...] = ()
    if plan.ranges is not None:
        ranked, held_out = tuple(rankings), frozenset(plan.held_out)
        sizes = (*ranked, *read_rankings(plan, device, (*probed, *spotted), executor, database))
        between = {"probed": probed, "spotted": spotted}
        apart = {name: frozenset(search.task.problem for search in its) for name, its in between.items()}
        apart["held_out"] = held_out
        rows = build_ranges(sizes, plan.ranges, margin=plan.margin, **apart)
        ranges = ranges_report(rows, sizes, plan.ranges, margin=plan.margin, **apart)
        rankings = (ranking for ranking in ranked if ranking.problem not in held_out)
    if plan.portfolio is not None:
        ranked = tuple(rankings)
        portfolio = choose(ranked, plan.portfolio, margin=plan.margin, alone=_spaces_run_alone())
        rankings = iter(ranked)
    table = build_table(device, plan.objective, rankings, margin=plan.margin, portfolio=portfolio)
    return Result(replace(table, ranges=rows), reader.findings(), tuple(reader.kept), portfolio, ranges)


def _spaces_run_alone() -> frozenset[str]:
    """Spaces of consumers that have no vendor library behind them: each needs a config for every problem."""
    consumed = (registry.exporter(name).spaces for name in registry.names(Exporter))
    return frozenset(space for spaces in consumed if BASELINE_SPACE not in spaces for space in spaces)


_Best = tuple[Config, float] | tuple[None, None]


class _Reader:
    """Goes through the problems once, and keeps little of each."""

    def __init__(
        self, plan: Plan, device: Device, searches: Sequence[TaskSearch], executor: Executor, database: Database
    ) -> None:
        self.kept: list[Measurement] = []
        self._objective = registry.objective(plan.objective)
        self._keeps_all = plan.portfolio is not None or bool(self._objective.parts)
        self._device = device
        self._searches = searches
        self._executor = executor
        self._database = database
        self._scale = OneScale(database)
        self._best: dict[Task, _Best] = {}
        self._stopped_after: dict[Task, tuple[int, ...]] = {}

    def rankings(self) -> Iterator[Ranking]:
        """One a problem that has any, sorted by its name."""
        of_problem: dict[Problem, list[TaskSearch]] = {}
        for search in self._searches:
            of_problem.setdefault(search.task.problem, []).append(search)
        for problem in sorted(of_problem, key=lambda p: (p.name, repr(p))):
            yield from self._ranking(problem, of_problem[problem])

    def findings(self) -> tuple[Finding, ...]:
        """One a task of the searched spaces; ask once the rankings are read."""
        return tuple(self._finding(search) for search in self._searches if search.task.space != BASELINE_SPACE)

    def _ranking(self, problem: Problem, searches: Sequence[TaskSearch]) -> Sequence[Ranking]:
        held: list[Final] = []
        if self._executor.settles:
            found = self._database.finals(problem, self._device, self._executor.protocol(searches[0].task))
            held = [self._scale.of_final(final) for final in found]
        measured: list[Measurement] = []
        for search in searches:
            task = search.task
            known = self._scale.known(task, self._executor)
            config, _ = self._best[task] = _best(search, self._objective, known, held)
            self._stopped_after[task] = _stopped_after(search, known)
            measured += known.values()
            if self._keeps_all:
                self.kept += known.values()
            elif known:
                self.kept.append(next(iter(known.values())) if config is None else known[config])
        return rank(self._device, self._objective, measured, BASELINE_SPACE, finals=held)

    def _finding(self, search: TaskSearch) -> Finding:
        task = search.task
        _, baseline_score = self._best.get(Task(task.problem, task.device, BASELINE_SPACE), (None, None))
        config, score = self._best[task]
        failures = Counter(t.status.value for t in search.tuner.trials if t.status is not Status.OK)
        fraction = None
        if isinstance(self._executor, ReplayExecutor):
            fraction = self._executor.optimum_ns(task) / score if score else 0.0
        return Finding(
            problem=task.problem,
            space=task.space,
            config=config,
            score=score,
            baseline_score=baseline_score,
            evaluations=search.tuner.evaluations,
            failures=dict(failures),
            fraction_of_optimum=fraction,
            stopped_after=self._stopped_after[task],
        )


def _best(
    search: TaskSearch, objective: Objective, known: Mapping[Config, Measurement], finals: Sequence[Final]
) -> _Best:
    """The best config of one task that may ship, and its score: the problem's last final before the search's trials.

    As in the table, what a final refuted is out for good, and a final tells of the binaries that it timed alone.
    """
    refuted = {out.config for final in finals for out in final.failed if out.task == search.task}
    for finalist in finals[-1].finalists if finals else ():  # the best first
        measured = known.get(finalist.config) if finalist.task == search.task else None
        if measured and measured.toolchain == finalist.toolchain and finalist.config not in refuted:
            settled = replace(measured, samples_ns=finalist.samples_ns, estimate=finalist.estimate)
            return finalist.config, objective.score(settled)
    scored = [(t.config, t.score) for t in search.tuner.trials if t.score is not None and t.config not in refuted]
    # Of like scores the one the table puts first: estimates are often alike.
    return min(scored, key=lambda trial: (trial[1], trial[0].json), default=(None, None))


def _stopped_after(search: TaskSearch, known: Mapping[Config, Measurement]) -> tuple[int, ...]:
    """Launches of each config of the search that racing stopped."""
    measured = (known[trial.config] for trial in search.tuner.trials if trial.config in known)
    return tuple(len(m.samples_ns) for m in measured if m.estimate is not None and m.estimate.stopped)
