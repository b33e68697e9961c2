"""Measure configs of one's own against the table's row and the baseline, in one final per problem."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gemmtune.engine.campaign.backend import Backend
from gemmtune.engine.campaign.known_table import known_table
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.result import read_problems
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.records.config import Config, values_text
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.final import Final
from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.records.table import Choice, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.scheduling.callbacks import Callback, notify
from gemmtune.engine.scheduling.scheduler import Scheduler
from gemmtune.engine.scheduling.task_search import exhaustive_search
from gemmtune.engine.scheduling.withdrawn import repeated
from gemmtune.engine.seams.kinds import measured_as
from gemmtune.engine.search.enumeration import membership
from gemmtune.engine.store.database import Database
from gemmtune.engine.tables.ranking import Contender, Ranking, rank


class Role(StrEnum):
    """Reason why a kernel is measured."""

    YOURS = "yours"
    """Named by the user."""
    ROW = "row"
    """Fastest kernel of the table's row."""
    KNOWN = "best known"
    """Fastest kernel of the problem in the database."""
    BASELINE = "baseline"
    """Kernel that runs untuned: for a GEMM the vendor library's."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One kernel with its numbers, or the reason for having none."""

    role: Role
    """Reason why it was measured."""
    task: Task
    """Task of the config."""
    config: Config
    """Config that was measured."""
    measurement: Measurement
    """Measurement of the config by itself, with the binary's resources."""
    contender: Contender | None
    """Times and rank, those of the final where one was held; None for a config that failed."""
    reason: str
    """Reason of the failure; empty without one."""
    lead: float | None
    """Time of the baseline over its own, minus 1; None without one of them."""

    @property
    def choice(self) -> Choice | None:
        """Its times and evidence; None for a config that failed."""
        return self.contender.choice if self.contender else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Kernels of one problem that were measured against each other."""

    problem: Workload
    """Problem that the kernels solve."""
    kernels: tuple[Compared, ...]
    """Own configs in the order they were named, then the row, the best known one and the baseline."""
    ranking: Ranking | None
    """Ranking of all that is known of the problem in these spaces; None where nothing works."""


Rivals = Mapping[tuple[Workload, str], Sequence[tuple[Role, Choice]]]
"""Choices to measure beside one's own configs, by problem and SKU of the device."""


def rivals_of(table: Table | None, database: Database | None, plan: Plan) -> Rivals:
    """Return the fastest kernels that a table and a database know for the plan's problems.

    The database's is always among them, so that a final with slow configs leaves its best one in the first place. None
    in place of a database stands for one that is not made yet.
    """
    found: dict[tuple[Workload, str], list[tuple[Role, Choice]]] = {}
    problems = set[Workload]().union(*map(measured_as, plan.problems))
    if table is not None:
        _add(found, Role.ROW, table, problems)
    if database is None:
        return found
    objective, margin = plan.plugins.objective, plan.margin
    for sku in sorted({task.device.sku for task in database.tasks() if task.problem in problems}):
        known = known_table(database, objective, plan.objective, margin=margin, device=sku, problems=problems)
        _add(found, Role.KNOWN, known, problems)
    return found


def _add(
    found: dict[tuple[Workload, str], list[tuple[Role, Choice]]], role: Role, table: Table, problems: Iterable[Workload]
) -> None:
    rows = {row.problem: row.kernel for row in table.rows}
    for problem in problems:
        ranges = (row for row in table.ranges if row.first <= problem.size <= row.last)
        ranged = next((row.choice for row in ranges if row.problem.series == problem.series), None)
        choice = rows.get(problem, ranged)
        if choice is not None and choice.space != problem.baseline_space:
            found.setdefault((problem, table.device.sku), []).append((role, choice))


def compare(
    plan: Plan,
    backend: Backend,
    database: Database,
    own: Mapping[Task, Sequence[Config]],
    rivals: Rivals,
    callbacks: Sequence[Callback],
) -> tuple[Comparison, ...]:
    """Measure own configs, their rivals and the baselines, and return a comparison per problem.

    Args:
        plan: its problems, and the spaces of all configs.
        backend: opened for the plan.
        database: keeps the measurements and finals; what it holds is not measured again.
        own: configs by task.
        rivals: from `rivals_of`.
        callbacks: follow the measurements.

    Raises:
        GemmtuneError: the executor has nothing left to measure with.
    """
    executor, objective = backend.executor, plan.plugins.objective
    wanted = _wanted(plan, backend, own, rivals, callbacks)
    by_task: dict[Task, list[Config]] = {}
    for task, config in wanted:
        by_task.setdefault(task, []).append(config)
    searches = [
        exhaustive_search(task, plan.plugins.spaces[task.space], configs, plan.scores)
        for task, configs in by_task.items()
    ]

    def attempt() -> None:
        Scheduler(searches, executor, database, objective, callbacks, finalists=wanted.keys()).run()

    repeated(searches, attempt)
    problems: dict[Workload, list[Task]] = {}
    for task in by_task:
        problems.setdefault(task.problem, []).append(task)
    held = read_problems(problems.values(), executor, database)
    found = []
    for problem, (known, finals) in zip(problems, held, strict=True):
        measurements = [m for of_task in known.values() for m in of_task.values()]
        ranking = next(iter(rank(backend.device, objective, measurements, finals=finals)), None)
        final = finals[-1] if finals else None
        kernels = tuple(
            _compared(role, task, config, known[task][config], ranking, final)
            for (task, config), role in wanted.items()
            if task.problem == problem
        )
        found.append(Comparison(problem, kernels, ranking))
    return tuple(found)


def _wanted(
    plan: Plan, backend: Backend, own: Mapping[Task, Sequence[Config]], rivals: Rivals, callbacks: Sequence[Callback]
) -> dict[tuple[Task, Config], Role]:
    """Return everything to measure with its role, problem by problem."""
    found: dict[tuple[Task, Config], Role] = {}
    for task, configs in own.items():
        problem, device = task.problem, backend.device
        found |= {(task, config): Role.YOURS for config in configs}
        for role, choice in rivals.get((problem, device.sku), ()):
            rival = Task(problem, device, choice.space)
            if _runs(plan, backend, rival, choice.config):
                found.setdefault((rival, choice.config), role)
            else:
                notify(callbacks, f"{problem.name}: the {role}'s kernel of {choice.space} is none that can run here")
        baseline = Task(problem, device, problem.baseline_space)
        for search in backend.searches:
            if search.task == baseline:
                found |= {(baseline, config): Role.BASELINE for config in search.space.seeds(baseline)[:1]}
    return found


def _runs(plan: Plan, backend: Backend, task: Task, config: Config) -> bool:
    """Return whether the space takes a config, and the recordings, if they answer, hold it."""
    if not membership(plan.plugins.spaces[task.space], task)(config):
        return False
    executor = backend.executor
    return not isinstance(executor, ReplayExecutor) or executor.recorded(task, config).status is not Status.INVALID


def require_recorded(backend: Backend, own: Mapping[Task, Collection[Config]]) -> None:
    """Raise a UsageError unless recordings, where they answer, hold every config."""
    executor = backend.executor
    if not isinstance(executor, ReplayExecutor):
        return
    for task, configs in own.items():
        for config in configs:
            found = executor.recorded(task, config)
            if found.status is Status.INVALID:
                count = len(executor.landscapes.of(task).points)
                raise UsageError(
                    f"config {values_text(config)} of {task.problem.name}: {found.reason}, which holds {count} "
                    "configs: measure it on a GPU, or take one that was recorded"
                )


def _compared(
    role: Role, task: Task, config: Config, measurement: Measurement, ranking: Ranking | None, final: Final | None
) -> Compared:
    of_space = ranking.of_space(task.space) if ranking else []
    contender = next((each for each in of_space if each.choice.config == config), None)
    failed = (each.reason for each in final.failed if (each.task, each.config) == (task, config)) if final else ()
    reason = "" if contender else measurement.reason or next(iter(failed), measurement.status)
    base = ranking.baseline if ranking else None
    lead = base.choice.time_ns / contender.choice.time_ns - 1 if base and contender else None
    return Compared(role, task, config, measurement, contender, reason, lead)
