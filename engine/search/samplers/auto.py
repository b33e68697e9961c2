"""Choice of the sampler that suits a search."""

from collections.abc import Sequence

from gemmtune.engine.io.numbers import checked
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.sampler import Sampler


class AutoSampler(Sampler):
    """Sampler that passes the search to another one, chosen by its budget, objectives, size and history.

    Args:
        search: task to search.
        most_for_transfer: largest feasible set left to `transfer`, whose model stays fast up to there.

    Raises:
        UsageError: the number is below 0.

    Example:
        >>> import gemmtune as gt
        >>> AutoSampler(gt.testing.example_search(budget=1000)).notice
        'sampler auto chose exhaustive: the budget of 1000 covers all 28 feasible configs'
    """

    multi_objective = True
    learns = True

    def __init__(self, search: Search, *, most_for_transfer: int = 50_000) -> None:
        super().__init__(search)
        name, why = _choice(search, checked(most_for_transfer, "most_for_transfer", int, least=0))
        self._chosen = registry.sampler(name)(search)
        self.notice = f"sampler auto chose {name}: {why}"

    def ask(self, count: int) -> list[Config]:
        """Return the proposals of the chosen sampler."""
        return self._chosen.ask(count)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Pass the trials to the chosen sampler."""
        self._chosen.tell(trials)


def _choice(search: Search, most_for_transfer: int) -> tuple[str, str]:
    """Return the name of a sampler and the reason for it."""
    count = len(search.feasible)
    if search.budget >= count and search.may_ask is None:
        return "exhaustive", f"the budget of {search.budget} covers all {count} feasible configs"
    if search.objectives > 1:
        return "tpe", f"{search.objectives} objectives"
    if search.may_ask is not None:
        return "evolution", "the space is too large to enumerate"
    if count > most_for_transfer:
        return "evolution", f"{count} feasible configs are more than the {most_for_transfer} that transfer is fast on"
    if search.history:
        return "transfer", f"{len(search.history)} other tasks to learn from"
    return "transfer", f"{search.budget} evaluations for {count} feasible configs"
