"""Read from the database what a campaign found, one problem at a time: all measurements would not fit into memory."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, tee

from gemmtune.engine.campaign.backend import Backend
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.rounds.ranges import RangeMeasurements
from gemmtune.engine.campaign.rounds.summations import summation_of
from gemmtune.engine.execution.gpu_normalization import GpuNormalization
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.records.final import Final
from gemmtune.engine.records.measurement import Evidence, Measurement, Status
from gemmtune.engine.records.table import RangeRow, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import BoardVerdict
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.known import Wanted
from gemmtune.engine.tables.loss_limits import RangeLimits
from gemmtune.engine.tables.portfolio import Portfolio, choose
from gemmtune.engine.tables.ranges import RangesReport, build_ranges, ranges_report
from gemmtune.engine.tables.ranking import Contender, Ranking, rank
from gemmtune.engine.tables.rows import build_table, reach_ns
from gemmtune.engine.tables.summation import invariant_table


@dataclass(frozen=True, slots=True)
class Finding:
    """Best config of one task, and an account of its search."""

    problem: Workload
    """Workload that was tuned."""
    space: str
    """Name of the space that was searched."""
    config: Config | None
    """Best config that the database holds, as the table ranks it; None if no config was ok."""
    score: float | None
    """Score of the config, in the objective's unit."""
    baseline_score: float | None
    """Score of the problem's baseline, in the objective's unit."""
    evaluations: int
    """Number of configs evaluated, failures included."""
    failures: Mapping[str, int]
    """Number of evaluations by status; ok is left out."""
    fraction_of_optimum: float | None
    """Recorded optimum over the best score found, 0 if none was; None where none is known, or nothing was tried."""
    found_here: bool = True
    """Whether this search evaluated the config; else ranges or another campaign that shares the database did."""
    stopped_early: int = 0
    """Configs whose launches screening stopped early."""


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of a campaign."""

    table: Table
    """Table of the rows that ship."""
    findings: tuple[Finding, ...]
    """Findings of the searched tasks, in the plan's order, without the baselines'."""
    measurements: tuple[Measurement, ...]
    """Best measurement of each task, or one of its failures. With a portfolio or an objective of several parts,
    everything that the table was built from."""
    portfolio: Portfolio | None = None
    """Configs that the problems share; None where each has its own best."""
    ranges: RangesReport | None = None
    """Losses of the ranges of m; None without ranges."""
    sampler: str = ""
    """Name of the sampler that searched the spaces."""
    damaged: int = 0
    """Number of damaged rows of the database, which were left out."""
    boards: tuple[BoardVerdict, ...] = ()
    """Last verdict on each board that measured for the database."""


@dataclass(frozen=True, slots=True)
class _ProblemResult:
    ranking: Ranking | None
    findings: tuple[Finding, ...]
    measurements: tuple[Measurement, ...]  # those that `Result` keeps


def read_problems(
    problems: Iterable[Sequence[Task]],
    executor: Executor,
    database: Database,
    narrowed: Callable[[Wanted], Wanted] | None = None,
) -> Iterator[tuple[dict[Task, dict[Config, Measurement]], list[Final]]]:
    """Yield what the database holds of each problem as the executor measures it: measurements and finals.

    Args:
        problems: tasks of each problem.
        executor: executor of the campaign.
        database: the measurements.
        narrowed: function that says what need not be read of a task; by default all is read.

    Raises:
        StoreError: the database cannot be read.
    """
    normalization = GpuNormalization(database)
    of_problems, again = tee(problems)
    tasks = chain.from_iterable(again)
    wanted = (Wanted(task, executor.protocol(task), executor.toolchain(task)) for task in tasks)
    known = normalization.known_of_each(map(narrowed, wanted) if narrowed else wanted, executor)
    for of_problem in of_problems:
        finals: list[Final] = []
        if executor.holds_finals:
            first = of_problem[0]
            found = database.finals(first.problem, first.device, executor.protocol(first))
            finals = [normalization.normalize_final(final) for final in found]
        yield {task: next(known) for task in of_problem}, finals


class ResultReader:
    """Reads problems' results from the database.

    With `keep`, a result is read once and kept until `forget` says that the problem was measured again.
    """

    def __init__(
        self,
        plan: Plan,
        backend: Backend,
        database: Database,
        held: Mapping[Task, Mapping[str, Measurement]],
        *,
        keep: bool,
    ) -> None:
        """Prepare to read; `held` has stored measurements of tasks that were read before, by their configs' digests."""
        self._plan = plan
        self._objective = plan.plugins.objective
        self._keeps_measurements = plan.portfolio is not None or bool(self._objective.parts)
        executor = backend.executor
        measured = executor.holds_finals or executor.evidence is Evidence.MEASURED
        all_count = self._keeps_measurements or plan.ranges is not None or plan.batch_invariant or len(plan.spaces) > 1
        self._reach = reach_ns if self._objective.by_time and not (measured or all_count) else None
        self._backend = backend
        self._database = database
        self._held = held
        self._keep = keep
        self._kept: dict[Workload, _ProblemResult] = {}

    def result(self, searches: Sequence[TaskSearch], measured: RangeMeasurements) -> Result:
        """Return the table from everything the database holds of the tasks, and what the searches found.

        Args:
            searches: the finished searches of the plan's tasks.
            measured: what was measured for the ranges alone: it counts for no row, finding or portfolio.
        """
        device = self._backend.device
        findings: dict[Task, Finding] = {}
        kept: list[Measurement] = []

        def ranked() -> Iterator[Ranking]:
            for result in self._results(searches):
                findings.update((Task(f.problem, device, f.space), f) for f in result.findings)
                kept.extend(result.measurements)
                if result.ranking is not None:
                    yield result.ranking

        make = self._invariant_table if self._plan.batch_invariant else self._table
        table, portfolio, ranges = make(ranked(), measured)
        return Result(
            table,
            tuple(findings[search.task] for search in searches if not search.task.is_baseline),
            tuple(kept),
            portfolio,
            ranges,
            registry.name_of(self._backend.sampler),
            self._database.damaged,
            tuple(self._database.boards.verdicts().values()),
        )

    def _table(
        self, rankings: Iterable[Ranking], measured: RangeMeasurements
    ) -> tuple[Table, Portfolio | None, RangesReport | None]:
        """Return the table, with what its configs and its ranges lose, where the plan asks for them."""
        plan = self._plan
        portfolio = ranges = None
        rows: tuple[RangeRow, ...] = ()
        if plan.ranges is not None:
            rankings = tuple(rankings)
            held_out = frozenset(plan.held_out)
            sizes = (*rankings, *self.rankings((*measured.probe_searches, *measured.interior_searches)))
            probed, interior = measured.probed, measured.interior
            rows = build_ranges(
                sizes, plan.ranges, margin=plan.margin, held_out=held_out, probed=probed, interior=interior
            )
            ranges = ranges_report(rows, sizes, margin=plan.margin, held_out=held_out, probed=probed | interior)
            rankings = (ranking for ranking in rankings if ranking.problem not in held_out)
        if plan.portfolio is not None:
            rankings = tuple(rankings)
            alone = _spaces_run_alone(set(plan.baselines))
            portfolio = choose(rankings, plan.portfolio, margin=plan.margin, alone=alone)
        device, margin = self._backend.device, plan.margin
        table = build_table(device, plan.objective, rankings, margin=margin, portfolio=portfolio)
        return replace(table, ranges=rows), portfolio, ranges

    def _invariant_table(
        self, rankings: Iterable[Ranking], _: RangeMeasurements
    ) -> tuple[Table, Portfolio | None, RangesReport | None]:
        """Return the table of one order of summation per series; its rows and ranges carry what they lose."""
        plan, device = self._plan, self._backend.device
        limits, of = plan.ranges or RangeLimits(), summation_of(plan, device)
        table = invariant_table(device, plan.objective, tuple(rankings), of, limits=limits, margin=plan.margin)
        return table, None, None

    def rankings(self, searches: Iterable[TaskSearch]) -> list[Ranking]:
        """Return the ranking of each problem that is searched and has one, sorted by the problem's name."""
        return [result.ranking for result in self._results(searches) if result.ranking is not None]

    def forget(self, searches: Iterable[TaskSearch]) -> None:
        """Read the results of these searches' problems again when they are next asked for."""
        for search in searches:
            self._kept.pop(search.task.problem, None)

    def _results(self, searches: Iterable[TaskSearch]) -> Iterator[_ProblemResult]:
        """Yield the result of each problem that is searched, sorted by the problem's name."""
        of_problem: dict[Workload, list[TaskSearch]] = {}
        of_task: dict[Task, TaskSearch] = {}
        for search in searches:
            of_problem.setdefault(search.task.problem, []).append(search)
            of_task[search.task] = search

        def narrowed(wanted: Wanted) -> Wanted:
            held = self._held.get(wanted.task, {})
            trials = () if held else of_task[wanted.task].trials
            needed = frozenset(trial.config.digest for trial in trials)
            return replace(wanted, held=held, reach_ns=self._reach, needed=needed)

        ordered = sorted(of_problem, key=lambda p: p.name)
        unread = [[search.task for search in of_problem[p]] for p in ordered if p not in self._kept]
        read = read_problems(unread, self._backend.executor, self._database, narrowed)
        for problem in ordered:
            result = self._kept.get(problem) or self._result_of(of_problem[problem], *next(read))
            if self._keep:
                self._kept[problem] = result
            yield result

    def _result_of(
        self,
        searches: Sequence[TaskSearch],
        known: Mapping[Task, Mapping[Config, Measurement]],
        finals: Sequence[Final],
    ) -> _ProblemResult:
        measurements = [m for found in known.values() for m in found.values()]
        rankings = rank(self._backend.device, self._objective, measurements, finals=finals)
        ranking = rankings[0] if rankings else None
        best = {task: next(iter(ranking.of_space(task.space)), None) if ranking else None for task in known}
        kept = measurements
        if not self._keeps_measurements:
            kept = [
                found[contender.choice.config] if contender else next(iter(found.values()))
                for found, contender in zip(known.values(), best.values(), strict=True)
                if found
            ]
        baseline = ranking.baseline if ranking else None
        findings = (
            self._finding(search, known[search.task], best[search.task], baseline)
            for search in searches
            if not search.task.is_baseline
        )
        return _ProblemResult(ranking, tuple(findings), tuple(kept))

    def _finding(
        self,
        search: TaskSearch,
        known: Mapping[Config, Measurement],
        best: Contender | None,
        baseline: Contender | None,
    ) -> Finding:
        config, score = (best.choice.config, best.score) if best else (None, None)
        optimum = self._backend.optimum(search.task)
        trials = search.trials
        measured = (known[trial.config] for trial in trials if trial.config in known)
        return Finding(
            problem=search.task.problem,
            space=search.task.space,
            config=config,
            score=score,
            baseline_score=baseline.score if baseline else None,
            evaluations=len(trials),
            failures=dict(Counter(trial.status.value for trial in trials if trial.status is not Status.OK)),
            fraction_of_optimum=None if optimum is None or not trials else optimum / score if score else 0.0,
            found_here=config is None or any(trial.config == config for trial in trials),
            stopped_early=sum(m.estimate is not None and bool(m.estimate.stopped) for m in measured),
        )


def _spaces_run_alone(baselines: Set[str]) -> frozenset[str]:
    """Return the spaces of consumers that run no baseline: each needs a config for every problem."""
    found = set[str]()
    for name in registry.names(Exporter):
        with suppress(ContractError):  # the export names an exporter that is broken
            spaces = set(registry.exporter(name).spaces)
            found |= set() if baselines & spaces else spaces
    return frozenset(found)
