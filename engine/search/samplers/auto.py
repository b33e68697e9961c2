"""The sampler for the search at hand."""

from __future__ import annotations

from collections.abc import Sequence

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.sampler import Sampler

__all__ = ["AutoSampler"]

_MOST = 50_000
"""Feasible configs up to which the surrogate of `transfer` thinks for no more than some 20 ms a config on one core."""


class AutoSampler(Sampler):
    """Hands the search to another sampler, by its budget, objectives and history, and says to which."""

    multi_objective = True
    learns = True

    def __init__(self, search: Search) -> None:
        """Choose."""
        super().__init__(search)
        name, why = _choice(search)
        self._chosen = registry.sampler(name)(search)
        self.notice = f"sampler auto chose {name}: {why}"

    def ask(self, count: int) -> list[Config]:
        """What the chosen one asks."""
        return self._chosen.ask(count)

    def tell(self, trials: Sequence[Trial]) -> None:
        """The chosen one learns."""
        self._chosen.tell(trials)


def _choice(search: Search) -> tuple[str, str]:
    """A sampler's name, and why."""
    count = len(search.feasible)
    if search.budget >= count:
        return "exhaustive", f"the budget of {search.budget} covers all {count} feasible configs"
    if search.objectives > 1:
        return "tpe", f"{search.objectives} objectives"
    if count > _MOST:
        return "evolution", f"{count} feasible configs are more than {_MOST}, the most that a surrogate is quick on"
    if search.history:
        return "transfer", f"{len(search.history)} other tasks to learn from"
    return "transfer", f"{search.budget} evaluations for {count} feasible configs"
