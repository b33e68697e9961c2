"""Remember what a finished campaign asked, so that the same command searches nothing again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TypeGuard

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.scheduling.task_search import TaskSearch, exhaustive_search
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.store.column_types import DEVICE, PROBLEM
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.files import write_whole

__all__ = ["FinishedCampaign"]


@dataclass(frozen=True, slots=True)
class FinishedCampaign:
    """The configs that each search of one campaign asked, by their digests, in a file.

    The file only saves time (see experiments/campaign-100). The samplers are asked again where it is missing, is of
    another campaign, or names a config that the database lacks. Measurements that other campaigns added since do not
    matter.
    """

    path: Path
    """File of the campaign."""
    plan: Plan
    """Plan of the campaign."""
    fresh: Sequence[TaskSearch]
    """Searches of the plan's tasks."""
    executor: Executor
    """Executor of the campaign."""

    @property
    def _campaign(self) -> str:
        """Digest of what the campaign searches, how, and how that is measured."""
        plan, tasks = self.plan, []
        for search in self.fresh:
            task, sampler = search.task, search.sampler
            how = f"{sampler.__module__}.{sampler.__qualname__}", search.budget, search.space.params(task)
            fields = task.space, PROBLEM.encode(task.problem), DEVICE.encode(task.device)
            tasks.append((fields, how, self.executor.protocol(task), self.executor.toolchain(task).text))
        seen = version("gemmtune"), plan.seed, plan.batch, plan.objective, plan.pruners, plan.limits.regret
        return hashlib.sha256(repr([seen, self.executor.evidence, tasks]).encode()).hexdigest()

    def searches(self, database: Database, notify: Callable[[str], None]) -> list[TaskSearch] | None:
        """Return searches that ask what was asked, one per search; None where the samplers must be asked.

        Args:
            database: holds the measurements of the campaign.
            notify: called with one line if the file is damaged.

        Raises:
            StoreError: the database cannot be read.
        """
        try:
            content = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            content = None
        if isinstance(content, dict) and content.get("campaign") not in (None, self._campaign):
            return None
        asked = content.get("asked") if isinstance(content, dict) else None
        if not _fits(asked, self.fresh):
            notify(f"{self.path} is damaged and ignored: the samplers are asked again, nothing is measured twice")
            return None
        found = []
        for search, digests in zip(self.fresh, asked, strict=True):
            protocol, toolchain = self.executor.protocol(search.task), self.executor.toolchain(search.task)
            known = database.known(search.task, protocol, self.executor.evidence, toolchain, digests)
            held = {config.digest: config for config in known}
            if not all(digest in held for digest in digests):
                return None
            configs = [held[digest] for digest in digests]
            found.append(exhaustive_search(search.task, search.space, configs, self.plan.scores))
        return found

    def write(self) -> None:
        """Write what the searches asked, unless time was over before they ended.

        Raises:
            UsageError: the file cannot be written.
        """
        if any(search.cut_short for search in self.fresh):
            return
        asked = [[trial.config.digest for trial in search.tuner.trials] for search in self.fresh]
        write_whole(self.path, (json.dumps({"campaign": self._campaign, "asked": asked}) + "\n").encode())


def _fits(asked: object, searches: Sequence[TaskSearch]) -> TypeGuard[list[list[str]]]:
    """Return whether `asked` holds, per search, distinct digests within the search's budget."""
    return (
        isinstance(asked, list)
        and len(asked) == len(searches)
        and all(
            isinstance(digests, list)
            and 0 < len(digests) <= search.budget
            and all(isinstance(digest, str) for digest in digests)
            and len(set(digests)) == len(digests)
            for digests, search in zip(asked, searches, strict=True)
        )
    )
