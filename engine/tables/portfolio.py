"""Portfolio: few configs that serve every problem nearly as well as its own best, so that fewer are compiled."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.table import SHIP_MARGIN
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.statistics import FULL_COVERAGE_SAMPLES
from gemmtune.engine.tables.loss_limits import LossLimits
from gemmtune.engine.tables.ranking import Contender, Ranking

_ROUNDING = 1e-9
"""Slack of a weighted mean against floating-point rounding, as a fraction."""

_Losses = NDArray[np.float64]


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
    rankings: Sequence[Ranking], limits: LossLimits, *, margin: float = SHIP_MARGIN, alone: Set[str] = frozenset()
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


@dataclass(frozen=True, slots=True)
class Demand:
    """A problem that one config has to serve."""

    weight: float
    """Factor of the problem's loss in the weighted mean."""
    losses: Mapping[Config, float]
    """Loss of every config that may serve the problem, as a fraction; 0 for one of them at least."""


def cover(demands: Sequence[Demand], mean: float, preferred: Set[Config] = frozenset()) -> list[Config]:
    """Return the config that serves each demand, in the order of `demands`.

    The choice is greedy, not always the fewest. Take the config that serves the most unserved problems until all are
    served, and add configs until the mean loss fits. Then drop those no longer needed, and exchange configs while that
    lowers the mean. Among equals take a preferred config, then the first by JSON. Only the arguments decide.
    """
    names = sorted({c for d in demands for c in d.losses}, key=lambda c: (c not in preferred, c.json))
    losses = np.array([[d.losses.get(c, np.inf) for d in demands] for c in names], np.float64)
    weights = np.array([d.weight for d in demands], np.float64)
    weights /= weights.sum()
    chosen = _greedy(losses, weights, mean)
    return [names[chosen[i]] for i in np.argmin(losses[chosen], axis=0)]


def _mean(losses: _Losses, weights: _Losses, chosen: Sequence[int]) -> float:
    """Return the weighted mean loss; infinite where a problem is not served."""
    return float(weights @ losses[list(chosen)].min(axis=0, initial=np.inf))


def _greedy(losses: _Losses, weights: _Losses, mean: float) -> list[int]:
    chosen: list[int] = []
    served = np.zeros(losses.shape[1], np.bool_)
    while not served.all():
        serves = np.isfinite(losses) & ~served
        lost = np.where(serves, losses, 0.0) @ weights
        chosen.append(int(np.lexsort((lost, -serves.sum(axis=1)))[0]))
        served |= serves[chosen[-1]]
    while _mean(losses, weights, chosen) > mean + _ROUNDING:
        best = losses[chosen].min(axis=0)
        chosen.append(int(np.argmin(np.minimum(best, losses) @ weights)))
    for config in list(chosen):
        rest = [c for c in chosen if c != config]
        if _mean(losses, weights, rest) <= mean + _ROUNDING:
            chosen = rest
    return sorted(_exchanged(losses, weights, chosen))


def _exchanged(losses: _Losses, weights: _Losses, chosen: Sequence[int]) -> list[int]:
    """Replace one config at a time by another while that lowers the mean loss."""
    best, mean = list(chosen), _mean(losses, weights, chosen)
    while True:
        swaps = []
        for i in range(len(best)):
            rest = [*best[:i], *best[i + 1 :]]
            means = np.minimum(losses[rest].min(axis=0, initial=np.inf), losses) @ weights
            new = int(np.argmin(means))
            swaps.append((float(means[new]), [*rest, new]))
        least, swapped = min(swaps, key=lambda swap: swap[0])
        if least >= mean - _ROUNDING:
            return best
        best, mean = swapped, least
