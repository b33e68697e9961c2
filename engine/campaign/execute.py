"""Execute a plan: search, finals, ranges, table."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from gemmtune.engine.campaign.backend import Backend
from gemmtune.engine.campaign.finished import FinishedSearches
from gemmtune.engine.campaign.measured_backend import unsearched
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.result import Result, ResultReader
from gemmtune.engine.campaign.rounds.ranges import RangeMeasurements, interior_problems, measure_ranges, probe_problems
from gemmtune.engine.campaign.rounds.summations import measure_summations, static_sizes
from gemmtune.engine.records.errors import GemmtuneError
from gemmtune.engine.records.measurement import Evidence, Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.callbacks import Callback, notify
from gemmtune.engine.scheduling.orders import Orders
from gemmtune.engine.scheduling.scheduler import Scheduler
from gemmtune.engine.scheduling.task_history import TaskHistory
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.scheduling.withdrawn import repeated
from gemmtune.engine.store.database import Database

_OVER = 1e-9
"""Limit of seconds for searches that begin when time is over."""


def execute(
    plan: Plan, backend: Backend, database: Database, callbacks: Sequence[Callback], orders: Orders | None = None
) -> Result:
    """Search the plan's tasks, hold the finals, measure the ranges, and build the table from the database.

    Args:
        plan: what to tune.
        backend: what answers; opened for this plan, and closed by the caller.
        database: keeps every measurement, and what finished searches asked. What it holds is not measured again, and
            no sampler is asked again in a search that it says is finished.
        callbacks: follow the campaign.
        orders: pause or cancel the campaign, or add problems to it, while it runs; None where nobody does.

    Raises:
        ContractError: the executor, a sampler or the objective broke its contract.
        GemmtuneError: the executor has nothing left to measure with.
        StoreError: the database refused.
        UsageError: the sampler takes one objective, and the plan's has several parts.
    """
    attempt = partial(_execute, plan, backend, database, callbacks, orders or Orders(), time.monotonic())
    return repeated(backend.searches, attempt)


def _execute(
    plan: Plan, backend: Backend, database: Database, callbacks: Sequence[Callback], orders: Orders, began: float
) -> Result:
    """Do once what `execute` does; raises RowsWithdrawn where it must be done again, with what is left."""
    objective, executor = plan.plugins.objective, backend.executor
    for line in unsearched(plan, [search.task for search in backend.searches]):
        notify(callbacks, line)
    if plan.batch_invariant:
        for line in static_sizes(backend.searches):
            notify(callbacks, line)
    scheduler = partial(
        Scheduler, executor=executor, database=database, objective=objective, callbacks=callbacks, orders=orders
    )
    searches: list[TaskSearch] = []
    held: dict[Task, dict[str, Measurement]] = {}
    fresh: Sequence[TaskSearch] = backend.searches
    orders.takes_problems = True
    while fresh:
        limits = plan.limits.after(time.monotonic() - began, executor.parallel) or replace(plan.limits, seconds=_OVER)
        tasks = [search.task for search in (*searches, *fresh)]
        problems = {task.problem for task in tasks}
        excluded = {*probe_problems(problems), *interior_problems(problems)} if plan.ranges else set()
        history = TaskHistory(
            database, executor, objective, plan.plugins.spaces, own=frozenset(tasks), excluded=excluded
        )
        for search in fresh:
            search.history = history
        finished = FinishedSearches(database, plan, fresh, executor)
        resumed = finished.resumed()
        # The range rounds of a finished campaign measured more at each problem. That calls for no further final.
        finals = not finished.complete or (plan.ranges is None and not plan.batch_invariant)
        scheduler(resumed, callbacks=(*callbacks, finished), limits=limits, hold_finals=finals).run()
        finished.write()
        searches += resumed
        held |= finished.held
        fresh = _added_searches(orders, backend, searches, callbacks)
    orders.takes_problems = False

    plan = _with_searched(plan, searches)
    reader = ResultReader(plan, backend, database, held, keep=plan.ranges is not None or plan.batch_invariant)

    def run_round(more: Sequence[TaskSearch]) -> None:
        scheduler(more, hold_finals=False).run()
        reader.forget(more)

    measured = RangeMeasurements()
    if plan.batch_invariant and not orders.is_cancelled:
        measure_summations(plan, searches, device=backend.device, run=run_round, rankings=reader.rankings)
    elif plan.ranges is not None and not orders.is_cancelled:
        measures = executor.evidence is Evidence.MEASURED
        measured = measure_ranges(
            plan, plan.ranges, searches, measures=measures, run=run_round, rankings=reader.rankings
        )
    result = reader.result(searches, measured)
    if plan.batch_invariant:
        served = {row.problem for row in result.table.rows}
        for name in dict.fromkeys(x.task.problem.series_name for x in searches if x.task.problem not in served):
            notify(callbacks, f"{name} has no rows: no order of summation was right at each of its sizes")
    return result


def _added_searches(
    orders: Orders, backend: Backend, searches: Iterable[TaskSearch], callbacks: Sequence[Callback]
) -> list[TaskSearch]:
    """Return the searches of problems that were added and that no search is of; say which cannot be searched.

    Args:
        orders: names the problems.
        backend: answers for the campaign.
        searches: the campaign's searches so far.
        callbacks: told why a problem is not searched.
    """
    known = {search.task.problem for search in searches}
    found: list[TaskSearch] = []
    for problem in () if orders.is_cancelled else [each for each in orders.added if each not in known]:
        try:
            found += backend.more(problem)
        except GemmtuneError as error:
            notify(callbacks, f"{problem.name} was added, and is not searched: {error}")
    return found


def _with_searched(plan: Plan, searches: Iterable[TaskSearch]) -> Plan:
    """Return the plan with the problems of all searches, for the campaign's result.

    They may be more than the plan's, and one may have another default than the plan says, which builds.
    """
    held_out = {problem.name for problem in plan.held_out}
    searched = {search.task.problem.name: search.task.problem for search in searches}
    problems = {problem.name: problem for problem in plan.problems}
    problems |= {name: problem for name, problem in searched.items() if name not in held_out}
    changed = tuple(problems.values())
    return plan.changed(problems=changed) if plan.problems and changed != plan.problems else plan
