"""Share the configs of a campaign with other drivers on its database, so that each is evaluated once."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from gemmtune.engine.execution.gpu_normalization import GpuNormalization
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.store.column_types import DEVICE, PROBLEM
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.known import Wanted
from gemmtune.engine.store.shared.claims import work_of

_LOOK_SECONDS = 0.1  # between two looks for results of other drivers, at least
_UNTOLD_SECONDS = 2.0  # between two looks where no driver says that it has stored some
_CLAIM_SECONDS = 5.0  # between two attempts to claim what another driver has
_SAY_SECONDS = 60.0  # between two lines about what is waited for
_FINAL = "final"


class SharedWork:
    """Share of the work that this driver evaluates, and that it leaves to others; a lone driver evaluates all.

    Before a config is submitted it is claimed, and looked for in the database once more: who evaluated it has stored it
    before the claim was free. What another driver has claimed is waited for, and taken over when its lease ends.
    """

    def __init__(
        self,
        database: Database,
        executor: Executor,
        normalization: GpuNormalization,
        say: Callable[[str], None],
        now: Callable[[], float],
    ) -> None:
        """Claim nothing yet.

        Args:
            database: holds the claims and the results.
            executor: evaluates what is claimed.
            normalization: reads results as the campaign compares them.
            say: called with one line for a person about other drivers.
            now: returns the seconds of a monotonic clock.
        """
        self._database = database
        self._claims = database.claims()
        self._executor = executor
        self._normalization = normalization
        self._say = say
        self._now = now
        self._looked = self._heard = self._tried = now()
        self._told = False  # whether another driver has stored results since the last look
        self._said = -_SAY_SECONDS

    @property
    def is_alone(self) -> bool:
        """Whether the database has one driver alone."""
        return self._claims is None

    def known(self, search: TaskSearch) -> dict[Config, Measurement]:
        """Return the measurements of a batch that were stored when the search began, in the batch's order.

        Raises:
            StoreError: the database cannot be read.
        """
        if search.stored is None:
            search.stored = {digest for digest, *_ in self._database.keys_of(search.task)}
        again = [config for config in search.batch if config.digest in search.stored]
        known = self._normalization.known(search.task, self._executor, again) if again else {}
        return {config: known[config] for config in again if config in known}

    def take(self, task: Task, configs: Sequence[Config]) -> tuple[list[Config], list[Measurement]]:
        """Claim configs; return those that this driver evaluates now, and the results of those that others have stored.

        Raises:
            StoreError: the database refused.
        """
        if self._claims is None or not configs:
            return list(configs), []
        work = self._work(task)
        taken = self._claims.take(work, [config.digest for config in configs])
        mine = [config for config in configs if config.digest in taken]
        stored = self._normalization.known(task, self._executor, mine) if mine else {}
        self._claims.release([(work, config.digest) for config in stored])
        return [config for config in mine if config not in stored], list(stored.values())

    def stored(self, waiting: Mapping[Task, Set[Config]]) -> list[Measurement]:
        """Return the stored results of configs that other drivers have; raises StoreError if it cannot read them."""
        wanted = [
            Wanted(task, self._executor.protocol(task), self._executor.toolchain(task), [c.digest for c in configs])
            for task, configs in waiting.items()
        ]
        found = self._normalization.known_of_each(wanted, self._executor)
        return [measurement for known in found for measurement in known.values()]

    def release(self, measurements: Iterable[Measurement]) -> None:
        """Give back the claims of results that are stored; raises StoreError if the database refused."""
        if self._claims is not None:
            self._claims.release([(self._work(each.task), each.config.digest) for each in measurements])

    def take_final(self, problem: Workload, device: Device) -> bool:
        """Claim a problem's final; return whether this driver holds it; raises StoreError if the database refused."""
        return self._claims is None or bool(self._claims.take(self._final(problem, device), [_FINAL]))

    def release_final(self, problem: Workload, device: Device) -> None:
        """Give back the claim of a final that is stored, or was not held; raises StoreError if the database refused."""
        if self._claims is not None:
            self._claims.release([(self._final(problem, device), _FINAL)])

    def release_all(self) -> None:
        """Give every claim back, for which others wait; raises StoreError if the database refused."""
        if self._claims is not None:
            self._claims.release_all()

    def wait(self, seconds: float) -> None:
        """Wait until another driver says that it has stored results, at most so long."""
        if self._claims is None or self._told:
            time.sleep(min(seconds, _LOOK_SECONDS) if self._told else seconds)
        else:
            self._told = self._claims.wait(seconds)

    def is_due(self, waits: bool) -> bool:
        """Renew the claims; return whether to look for results of other drivers now, where the campaign `waits` so.

        Raises:
            StoreError: the database refused.
        """
        if self._claims is None:
            return False
        self._claims.renew()
        now = self._now()
        if now - self._heard >= _LOOK_SECONDS:  # what nobody reads would fill the server's queue
            self._heard = now
            self.wait(0.0)
        if not waits or now - self._looked < (_LOOK_SECONDS if self._told else _UNTOLD_SECONDS):
            return False
        self._looked, self._told = now, False
        return True

    def may_take_over(self) -> bool:
        """Return whether to try again, once in a while, to claim what other drivers have; say who they are.

        Raises:
            StoreError: the database cannot be read.
        """
        now = self._now()
        if self._claims is None or now - self._tried < _CLAIM_SECONDS:
            return False
        self._tried = now
        others = self._claims.others()
        if others and now - self._said >= _SAY_SECONDS:
            self._said = now
            named = ((re.sub(r"#\w+| \w+$", "", owner), number) for owner, number in sorted(others.items()))
            held = ", ".join(f"{owner} has {number}" for owner, number in named)
            self._say(f"other drivers on this database evaluate a part: {held}")
        return True

    def _work(self, task: Task) -> str:
        executor = self._executor
        measured = executor.evidence.value, executor.protocol(task), executor.toolchain(task).text
        return work_of(task.space, PROBLEM.encode(task.problem), DEVICE.encode(task.device), *measured)

    def _final(self, problem: Workload, device: Device) -> str:
        return work_of(_FINAL, PROBLEM.encode(problem), DEVICE.encode(device))
