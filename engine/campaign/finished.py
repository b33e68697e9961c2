"""What a campaign that ran to its end has asked: the same command need not think of it again.

Told the same, a sampler asks the same; but for a hundred tasks of 24 evaluations, that and enumerating what is feasible
took 16 of 19 s. Nothing else hangs on this file: without it, or where it is another campaign's, or where the database
does not hold all that was asked, the samplers are asked again. What other campaigns have measured since is no reason
to: what is finished stays finished.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.scheduling.task_search import TaskSearch, prepare
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.files import write_whole
from gemmtune.engine.store.serialization import task_row

__all__ = ["Asked"]


class Asked:
    """The configs that each search of one campaign asked, by their digests, in a file."""

    def __init__(self, path: Path, plan: Plan, searches: Sequence[TaskSearch], executor: Executor) -> None:
        """Name the campaign by what it searches, how, and how that is measured."""
        self._path = path
        self._plan = plan
        self._searches = searches
        self._executor = executor
        self._spaces = {name: registry.space(name) for name in dict.fromkeys(s.task.space for s in searches)}
        how = (version("gemmtune"), plan.seed, plan.batch, plan.objective, plan.pruners, plan.limits.regret)
        text = repr([how, executor.evidence, [self._terms(search) for search in searches]])
        self._campaign = hashlib.sha256(text.encode()).hexdigest()

    def again(self, database: Database) -> list[TaskSearch] | None:
        """Searches that ask what was asked, one for each of the campaign's; None where the samplers must be asked.

        Raises:
            StoreError: the database cannot be read.
        """
        try:
            kept = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return None  # there is none, or it is not ours
        if not isinstance(kept, dict) or kept.get("campaign") != self._campaign:
            return None
        sampler, parts = registry.sampler("exhaustive"), registry.objective(self._plan.objective).parts
        found = []
        for search, digests in zip(self._searches, kept["asked"], strict=True):
            task = search.task
            protocol, toolchain = self._executor.protocol(task), self._executor.toolchain(task)
            held = database.configs(task, protocol, self._executor.evidence, toolchain)
            if not all(digest in held for digest in digests):
                return None
            configs, count = [held[digest] for digest in digests], len(digests)
            space, seed = self._spaces[task.space], self._plan.seed
            found.append(prepare(task, space, configs, sampler, count, seed, count, max(1, len(parts))))
        return found

    def keep(self) -> None:
        """Write down what the searches asked, unless time was over before they were.

        Raises:
            UsageError: the file cannot be written.
        """
        if any(search.cut_short for search in self._searches):
            return
        asked = [[trial.config.digest for trial in search.tuner.trials] for search in self._searches]
        write_whole(self._path, (json.dumps({"campaign": self._campaign, "asked": asked}) + "\n").encode())

    def _terms(self, search: TaskSearch) -> tuple[object, ...]:
        task, sampler = search.task, search.sampler
        how = f"{sampler.__module__}.{sampler.__qualname__}", search.evaluations, self._spaces[task.space].params(task)
        return task_row(task), how, self._executor.protocol(task), self._executor.toolchain(task).text
