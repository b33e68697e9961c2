"""Remember what finished searches asked, so that the same command does not ask their samplers again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TypeGuard

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.scheduling.task_search import TaskSearch, exhaustive_search
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.store.column_types import DEVICE, PROBLEM
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.files import write_whole
from gemmtune.engine.store.known import Wanted

__all__ = ["FinishedSearches"]

_FIRST_WRITE = 16  # searches that end before the file is written
_GROWTH = 1.25  # from one write to the next: a campaign that is killed repeats the proposals of a fifth of its searches


class FinishedSearches(Callback):
    """The configs that each finished search of one campaign asked, by their digests, in a file.

    The file only saves time (see experiments/growth). A sampler is asked again where the file is missing, is of another
    campaign, or names a config that the database lacks. Measurements that other campaigns added since do not matter.
    """

    def __init__(self, path: Path, plan: Plan, searches: Sequence[TaskSearch], executor: Executor) -> None:
        """Remember nothing yet.

        Args:
            path: file of the campaign.
            plan: plan of the campaign.
            searches: fresh searches of the plan's tasks.
            executor: executor of the campaign.
        """
        self._path = path
        self._plan = plan
        self._searches = searches
        self._executor = executor
        self._number = {search.task: number for number, search in enumerate(searches)}
        self._asked: list[list[str] | None] = [None] * len(searches)
        self._ended = 0  # searches that ended in this run of the campaign
        self._written = 0  # those of them that the file holds
        self._next_write = _FIRST_WRITE
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
        return None not in self._asked

    def resumed(self, database: Database, notify: Callable[[str], None]) -> list[TaskSearch]:
        """Return the searches, with one that asks what was asked in place of each that has ended before.

        Args:
            database: holds the measurements of the campaign.
            notify: called with one line if the file is damaged.

        Raises:
            StoreError: the database cannot be read.
        """
        asked = self._read(notify)
        ended = [(search, digests) for search, digests in zip(self._searches, asked, strict=True) if digests]
        wanted = (
            Wanted(search.task, self._executor.protocol(search.task), self._executor.toolchain(search.task), digests)
            for search, digests in ended
        )
        resumed = {}
        for (search, digests), known in zip(
            ended, database.known_of_each(wanted, self._executor.evidence), strict=True
        ):
            held = {config.digest: measurement for config, measurement in known.items()}
            if len(held) == len(digests):
                self.held[search.task] = held
                self._asked[self._number[search.task]] = digests
                configs = [held[digest].config for digest in digests]
                resumed[search.task] = exhaustive_search(search.task, search.space, configs, self._plan.scores)
                resumed[search.task].held = known
        return [resumed.get(search.task, search) for search in self._searches]

    def on_search_end(self, search: TaskSearch, reason: str) -> None:
        """Take note of what an ended search asked, unless its time was over; write the file now and then.

        Raises:
            UsageError: the file cannot be written.
        """
        number = self._number[search.task]
        if search.cut_short or self._asked[number] is not None:
            return
        self._asked[number] = [trial.config.digest for trial in search.tuner.trials]
        self._ended += 1
        if self._ended >= self._next_write:
            self.write()
            self._next_write = int(_GROWTH * self._ended)

    def write(self) -> None:
        """Write what the ended searches asked, if the file does not hold it.

        Raises:
            UsageError: the file cannot be written.
        """
        if self._ended > self._written:
            content = {"campaign": self._campaign, "asked": self._asked}
            write_whole(self._path, (json.dumps(content) + "\n").encode())
            self._written = self._ended

    def _read(self, notify: Callable[[str], None]) -> list[list[str] | None]:
        """Return what each search asked, None for one that has not ended."""
        nothing: list[list[str] | None] = [None] * len(self._searches)
        try:
            content = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return nothing
        except (OSError, ValueError, RecursionError):
            content = None
        if isinstance(content, dict) and content.get("campaign") not in (None, self._campaign):
            return nothing
        asked = content.get("asked") if isinstance(content, dict) else None
        if _fits(asked, self._searches):
            return asked
        notify(f"{self._path} is damaged and ignored: the samplers are asked again, nothing is measured twice")
        return nothing


def _fits(asked: object, searches: Sequence[TaskSearch]) -> TypeGuard[list[list[str] | None]]:
    """Return whether `asked` holds, per search, None or distinct digests within the search's budget."""
    return (
        isinstance(asked, list)
        and len(asked) == len(searches)
        and all(
            digests is None
            or (
                isinstance(digests, list)
                and 0 < len(digests) <= search.budget
                and all(isinstance(digest, str) and digest.isascii() for digest in digests)
                and len(set(digests)) == len(digests)
            )
            for digests, search in zip(asked, searches, strict=True)
        )
    )
