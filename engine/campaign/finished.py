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
    """The configs that each finished search asked, by their digests, in the database.

    A search is known by its task and how it was searched, so that a problem more in a campaign asks one sampler more.

    They only save time (see experiments/growth). A sampler is asked again where the database does not hold what it
    asked, or lacks a measurement of it. Measurements that other campaigns added since do not matter.
    """

    def __init__(self, database: Database, plan: Plan, searches: Sequence[TaskSearch], executor: Executor) -> None:
        """Remember nothing yet; the searches of the plan's tasks are fresh."""
        self._database = database
        self._plan = plan
        self._searches = searches
        self._executor = executor
        self._ended: set[Task] = set()  # tasks whose searches have ended, now or before
        self._unwritten: dict[str, list[str]] = {}
        self.held: dict[Task, dict[str, Measurement]] = {}
        """Stored measurements of the searches that ended before, by the digests of their configs."""

    @cached_property
    def _keys(self) -> dict[Task, str]:
        """Digest per task of what is searched, how, beside which other spaces, and how that is measured."""
        plan, executor, keys = self._plan, self._executor, {}
        seen = version("gemmtune"), plan.seed, plan.batch, plan.objective, plan.pruners, plan.limits.regret, plan.spaces
        for search in self._searches:
            task, sampler = search.task, search.sampler
            how = f"{sampler.__module__}.{sampler.__qualname__}", search.budget, search.space.params(task)
            fields = task.space, PROBLEM.encode(task.problem), DEVICE.encode(task.device)
            measured = executor.evidence, executor.protocol(task), executor.toolchain(task).text
            keys[task] = hashlib.sha256(repr([seen, fields, how, measured]).encode()).hexdigest()
        return keys

    @property
    def complete(self) -> bool:
        """Whether every search of the campaign has ended."""
        return len(self._ended) == len(self._searches)

    def resumed(self) -> list[TaskSearch]:
        """Return the searches, with one that asks what was asked in place of each that has ended before.

        Raises:
            StoreError: the database cannot be read.
        """
        asked = self._database.searches(list(self._keys.values()))
        found = ((search, asked.get(self._keys[search.task], [])) for search in self._searches)
        ended = [
            (search, digests) for search, digests in found if 0 < len(set(digests)) == len(digests) <= search.budget
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
                self._ended.add(search.task)
                resumed[search.task] = ended_search(search, digests, known)
        return [resumed.get(search.task, search) for search in self._searches]

    def on_search_end(self, search: TaskSearch, reason: str) -> None:
        """Take note of what an ended search asked, unless its time was over; store it now and then.

        Raises:
            StoreError: the database refused.
        """
        if search.cut_short or search.task in self._ended:
            return
        self._ended.add(search.task)
        self._unwritten[self._keys[search.task]] = [trial.config.digest for trial in search.trials]
        if len(self._unwritten) == _WRITTEN_TOGETHER:
            self.write()

    def write(self) -> None:
        """Store what ended searches asked and the database lacks; raises StoreError if it refused."""
        if self._unwritten:
            self._database.add_searches(self._unwritten)
            self._unwritten = {}
