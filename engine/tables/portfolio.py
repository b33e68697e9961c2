"""Portfolio: few configs that serve every problem nearly as well as its own best, so that fewer are compiled."""

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.table import SHIP_MARGIN
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.statistics import FULL_COVERAGE_SAMPLES
from gemmtune.engine.tables.loss_limits import LossLimits
from gemmtune.engine.tables.ranking import Contender, Ranking
from gemmtune.engine.tables.set_cover import Demand, cover


@dataclass(frozen=True, slots=True)
class Pick:
    """The portfolio's config for one problem in one space."""

    problem: Workload
    """Problem that the config serves."""
    space: str
    """Name of the config's space."""
    config: Config
    """Config that the portfolio picked."""
    own: Config
    """Best config of the problem in this space."""
    loss: float
    """Score of `config` over that of `own`, minus 1; 0 where they are the same."""
    bound: float
    """Loss computed with the upper end of the time's interval, as a fraction."""


@dataclass(frozen=True, slots=True)
class Portfolio:
    """Picks for all problems that are served, and the limits they keep."""

    limits: LossLimits
    """Largest losses that were allowed."""
    picks: tuple[Pick, ...]
    """One pick per served problem and space, sorted by space and family."""

    def of(self, problem: Workload) -> tuple[Pick, ...]:
        """Return the picks of one problem, one per space."""
        return tuple(pick for pick in self.picks if pick.problem == problem)


def choose(
    rankings: Sequence[Ranking],
    limits: LossLimits,
    *,
    margin: float = SHIP_MARGIN,
    alone: Set[str] = frozenset(),
) -> Portfolio:
    """Choose few configs per space and family that keep every problem within the limits of its own best.

    A problem is served in the space of its fastest choice if that may ship, and in every space of `alone` that has a
    contender. Any config that may ship serves if its score is within `limits.worst` of the best of its space; one with
    fewer than FULL_COVERAGE_SAMPLES launches, by the upper end of its interval. A config with a single launch has no
    interval, and counts only where the best has no more launches. Spaces of `alone` are those that a consumer runs
    without any other.
    """
    groups: defaultdict[tuple[str, Workload], list[tuple[Workload, dict[Config, Pick]]]] = defaultdict(list)
    for ranking in rankings:
        for space, contenders in _served(ranking, margin, alone):
            picks = {pick.config: pick for pick in _admissible(ranking.problem, contenders, limits.worst)}
            groups[space, ranking.problem.family].append((ranking.problem, picks))
    chosen: defaultdict[str, set[Config]] = defaultdict(set)
    found: list[Pick] = []
    for (space, _), group in sorted(groups.items(), key=lambda item: (item[0][0], repr(item[0][1]))):
        demands = [Demand(problem.weight, {c: p.loss for c, p in picks.items()}) for problem, picks in group]
        serving = cover(demands, limits.mean, chosen[space])
        chosen[space].update(serving)
        found += [picks[config] for (_, picks), config in zip(group, serving, strict=True)]
    return Portfolio(limits, tuple(found))


def _served(ranking: Ranking, margin: float, alone: Set[str]) -> Iterator[tuple[str, list[Contender]]]:
    """Yield the spaces in which the problem is served, each with its contenders, best first."""
    fastest, baseline = ranking.fastest, ranking.baseline
    leading = None
    if fastest is not baseline and ranking.may_ship(fastest, margin):
        leading = fastest.choice.space
        yield leading, [c for c in ranking.of_space(leading) if ranking.may_ship(c, margin)]
    for space in sorted(alone - {leading}):
        if contenders := ranking.of_space(space):
            yield space, contenders


def _admissible(problem: Workload, contenders: Sequence[Contender], worst: float) -> Iterator[Pick]:
    """Yield a pick per contender that loses little enough; `contenders` start with the best."""
    best = contenders[0]
    for one in contenders:
        choice = one.choice
        loss = max(0.0, one.score / best.score - 1)
        bound = max(0.0, one.score * choice.high_ns / choice.time_ns / best.score - 1)
        screened = choice.samples < FULL_COVERAGE_SAMPLES
        if one is best:
            yield Pick(problem, choice.space, choice.config, choice.config, 0.0, 0.0)
        elif screened and choice.samples < 2 and best.choice.samples > choice.samples:
            continue
        elif (bound if screened else loss) <= worst:
            yield Pick(problem, choice.space, choice.config, best.choice.config, loss, bound)
