"""Remember what a finished campaign asked, so that the same command searches nothing again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.scheduling.task_search import TaskSearch, exhaustive_search
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.store.column_types import DEVICE, PROBLEM
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.files import write_whole

__all__ = ["FinishedCampaign"]


class FinishedCampaign:
    """The configs that each search of one campaign asked, by their digests, in a file.

    The file only saves time (see experiments/campaign-100). The samplers are asked again where it is missing, is of
    another campaign, or names a config that the database lacks. Measurements that other campaigns added since do not
    matter.
    """

    def __init__(self, path: Path, plan: Plan, searches: Sequence[TaskSearch], executor: Executor) -> None:
        """Identify the campaign by what it searches, how, and how that is measured."""
        self._path = path
        self._plan = plan
        self._searches = searches
        self._executor = executor
        how = (version("gemmtune"), plan.seed, plan.batch, plan.objective, plan.pruners, plan.limits.regret)
        text = repr([how, executor.evidence, [self._identity(search) for search in searches]])
        self._campaign = hashlib.sha256(text.encode()).hexdigest()

    def searches(self, database: Database) -> list[TaskSearch] | None:
        """Return searches that ask what was asked, one per search; None where the samplers must be asked.

        Raises:
            StoreError: the database cannot be read.
        """
        try:
            content = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return None
        if not isinstance(content, dict) or content.get("campaign") != self._campaign:
            return None
        found = []
        for search, digests in zip(self._searches, content["asked"], strict=True):
            protocol, toolchain = self._executor.protocol(search.task), self._executor.toolchain(search.task)
            held = database.configs(search.task, protocol, self._executor.evidence, toolchain)
            if not all(digest in held for digest in digests):
                return None
            configs = [held[digest] for digest in digests]
            found.append(exhaustive_search(search.task, search.space, configs, self._plan.scores))
        return found

    def write(self) -> None:
        """Write what the searches asked, unless time was over before they ended.

        Raises:
            UsageError: the file cannot be written.
        """
        if any(search.cut_short for search in self._searches):
            return
        asked = [[trial.config.digest for trial in search.tuner.trials] for search in self._searches]
        write_whole(self._path, (json.dumps({"campaign": self._campaign, "asked": asked}) + "\n").encode())

    def _identity(self, search: TaskSearch) -> tuple[object, ...]:
        task, sampler = search.task, search.sampler
        fields = task.space, PROBLEM.encode(task.problem), DEVICE.encode(task.device)
        how = f"{sampler.__module__}.{sampler.__qualname__}", search.budget, search.space.params(task)
        return fields, how, self._executor.protocol(task), self._executor.toolchain(task).text
