"""Execute a plan: search, finals, ranges, table."""

from collections.abc import Sequence
from functools import partial

from gemmtune.engine.campaign.backend import Backend
from gemmtune.engine.campaign.finished import FinishedSearches
from gemmtune.engine.campaign.measured_backend import unsearched
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.range_rounds import RangeMeasurements, interior_problems, measure_ranges, probe_problems
from gemmtune.engine.campaign.result import Result, ResultReader
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.scheduling.callbacks import Callback, notify
from gemmtune.engine.scheduling.scheduler import Scheduler
from gemmtune.engine.scheduling.task_history import TaskHistory
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.store.database import Database


def execute(plan: Plan, backend: Backend, database: Database, callbacks: Sequence[Callback]) -> Result:
    """Search the plan's tasks, hold the finals, measure the ranges, and build the table from the database.

    Args:
        plan: what to tune.
        backend: what answers; opened for this plan, and closed by the caller.
        database: keeps every measurement, and what finished searches asked. What it holds is not measured again, and
            no sampler is asked again in a search that it says is finished.
        callbacks: follow the campaign.

    Raises:
        ContractError: the executor, a sampler or the objective broke its contract.
        GemmtuneError: the executor has nothing left to measure with.
        StoreError: the database refused.
        UsageError: the sampler takes one objective, and the plan's has several parts.
    """
    objective, executor = plan.plugins.objective, backend.executor
    tasks = [search.task for search in backend.searches]
    for line in unsearched(plan, tasks):
        notify(callbacks, line)
    problems = {task.problem for task in tasks}
    excluded = {*probe_problems(problems), *interior_problems(problems)} if plan.ranges else set()
    history = TaskHistory(database, executor, objective, plan.plugins.spaces, own=frozenset(tasks), excluded=excluded)
    scheduler = partial(Scheduler, executor=executor, database=database, objective=objective, callbacks=callbacks)

    for search in backend.searches:
        search.history = history
    finished = FinishedSearches(database, plan, backend.searches, executor)
    searches = finished.resumed()
    # The range rounds of a finished campaign measured more at each problem. That calls for no further final.
    finals = not finished.complete or plan.ranges is None
    scheduler(searches, callbacks=(*callbacks, finished), limits=plan.limits, hold_finals=finals).run()
    finished.write()

    reader = ResultReader(plan, backend, database, finished.held, keep=plan.ranges is not None)

    def run_round(more: Sequence[TaskSearch]) -> None:
        scheduler(more, hold_finals=False).run()
        reader.forget(more)

    measured = RangeMeasurements()
    if plan.ranges is not None:
        measures = executor.evidence is Evidence.MEASURED
        measured = measure_ranges(
            plan, plan.ranges, searches, measures=measures, run=run_round, rankings=reader.rankings
        )
    return reader.result(searches, measured)
