"""Every config in the order of enumeration."""

from collections.abc import Sequence

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.seams.sampler import Sampler


class ExhaustiveSampler(Sampler):
    """Sampler that proposes the feasible set from first to last, whatever its seed and the space's seeds."""

    multi_objective = True

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self._left = list(reversed(search.feasible))

    def ask(self, count: int) -> list[Config]:
        """Return the next `count` configs."""
        return [self._left.pop() for _ in range(min(count, len(self._left)))]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Ignore the trials and their outcomes."""
