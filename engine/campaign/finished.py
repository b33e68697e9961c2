"""Remember what finished searches asked, so that the same command does not ask their samplers again."""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.scheduling.task_search import TaskSearch, ended_search
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.store.column_types import DEVICE, PROBLEM
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.known import Wanted

_WRITTEN_TOGETHER = 16  # searches; a campaign that is killed asks the samplers of fewer again


class FinishedSearches(Callback):
    """The configs that each finished search of one campaign asked, by their digests, in the database.

    They only save time (see experiments/growth). A sampler is asked again where the database does not hold what it
    asked, or lacks a measurement of it. Measurements that other campaigns added since do not matter.
    """

    def __init__(self, database: Database, plan: Plan, searches: Sequence[TaskSearch], executor: Executor) -> None:
        """Remember nothing yet.

        Args:
            database: holds the measurements of the campaign, and what its searches asked.
            plan: plan of the campaign.
            searches: fresh searches of the plan's tasks.
            executor: executor of the campaign.
        """
        self._database = database
        self._plan = plan
        self._searches = searches
        self._executor = executor
        self._number = {search.task: number for number, search in enumerate(searches)}
        self._ended: set[int] = set()  # numbers of the searches that have ended, now or before
        self._unwritten: dict[int, list[str]] = {}
        self.held: dict[Task, dict[str, Measurement]] = {}
        """Stored measurements of the searches that ended before, by the digests of their configs."""

    @cached_property
    def _campaign(self) -> str:
        """Digest of what the campaign searches, how, and how that is measured."""
        plan, tasks = self._plan, []
        for search in self._searches:
            task, sampler = search.task, search.sampler
            how = f"{sampler.__module__}.{sampler.__qualname__}", search.budget, search.space.params(task)
            fields = task.space, PROBLEM.encode(task.problem), DEVICE.encode(task.device)
            tasks.append((fields, how, self._executor.protocol(task), self._executor.toolchain(task).text))
        seen = version("gemmtune"), plan.seed, plan.batch, plan.objective, plan.pruners, plan.limits.regret
        return hashlib.sha256(repr([seen, self._executor.evidence, tasks]).encode()).hexdigest()

    @property
    def complete(self) -> bool:
        """Whether every search of the campaign has ended."""
        return len(self._ended) == len(self._searches)

    def resumed(self) -> list[TaskSearch]:
        """Return the searches, with one that asks what was asked in place of each that has ended before.

        Raises:
            StoreError: the database cannot be read.
        """
        asked = self._database.searches(self._campaign)
        ended = [
            (search, asked[number])
            for number, search in enumerate(self._searches)
            if 0 < len(set(asked.get(number, ()))) == len(asked[number]) <= search.budget
        ]
        wanted = (
            Wanted(search.task, self._executor.protocol(search.task), self._executor.toolchain(search.task), digests)
            for search, digests in ended
        )
        resumed = {}
        for (search, digests), known in zip(
            ended, self._database.known_of_each(wanted, self._executor.evidence), strict=True
        ):
            if len(known) == len(digests):
                self.held[search.task] = {config.digest: measurement for config, measurement in known.items()}
                self._ended.add(self._number[search.task])
                resumed[search.task] = ended_search(search, digests, known)
        return [resumed.get(search.task, search) for search in self._searches]

    def on_search_end(self, search: TaskSearch, reason: str) -> None:
        """Take note of what an ended search asked, unless its time was over; store it now and then.

        Raises:
            StoreError: the database refused.
        """
        number = self._number[search.task]
        if search.cut_short or number in self._ended:
            return
        self._ended.add(number)
        self._unwritten[number] = [trial.config.digest for trial in search.trials]
        if len(self._unwritten) == _WRITTEN_TOGETHER:
            self.write()

    def write(self) -> None:
        """Store what the ended searches asked, as far as the database does not hold it.

        Raises:
            StoreError: the database refused.
        """
        if self._unwritten:
            self._database.add_searches(self._campaign, self._unwritten)
            self._unwritten = {}
