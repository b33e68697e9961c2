"""The portfolio: few configs that serve every problem nearly as well as its own best, so that fewer are compiled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.statistics import FULL_COVERAGE_SAMPLES
from gemmtune.engine.tables.ranking import SHIP_MARGIN, Contender, Ranking
from gemmtune.engine.tables.set_cover import Demand, cover

__all__ = ["LossLimits", "Pick", "Portfolio", "choose", "family"]


@dataclass(frozen=True, slots=True)
class LossLimits:
    """What sharing configs may cost, as fractions of the objective's score."""

    worst: float = 0.02
    """Of any one problem: within what one config spreads across GPUs of one model."""
    mean: float = 0.005
    """Of all problems of a space and family, weighted."""

    def __post_init__(self) -> None:
        """Refuse what is below 0."""
        for name in ("worst", "mean"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"portfolio: {name}={getattr(self, name)} is not a fraction from 0 on, such as 0.02")


@dataclass(frozen=True, slots=True)
class Pick:
    """What serves a problem in one space."""

    problem: Problem
    """The GEMM."""
    space: str
    """The space."""
    config: Config
    """The portfolio's config."""
    own: Config
    """The best config of the problem in this space."""
    loss: float
    """Score over that of its own best, minus 1; 0 where it is the same."""
    bound: float
    """The same with the upper end of its interval."""


@dataclass(frozen=True, slots=True)
class Portfolio:
    """What was chosen."""

    limits: LossLimits
    """What it was allowed to cost."""
    picks: tuple[Pick, ...]
    """One a problem and space that is served, by space and family."""

    def of(self, problem: Problem) -> tuple[Pick, ...]:
        """The picks of one problem, one a space."""
        return tuple(pick for pick in self.picks if pick.problem == problem)


def choose(
    rankings: Sequence[Ranking],
    limits: LossLimits,
    *,
    margin: float = SHIP_MARGIN,
    alone: Set[str] = frozenset(),
) -> Portfolio:
    """The fewest configs, for each space and family, that keep every problem within the limits of its own best.

    What is served: every problem whose fastest may ship, in the space of that; and every problem that has a contender
    of a space in `alone`, in that space. Where the baseline ships there is nothing to compile.

    Whatever was measured may serve, not only winners, if its score is within `limits.worst` of the best of its space,
    and if it, too, may ship in the place of the baseline. A config that only screening has seen, with fewer than
    FULL_COVERAGE_SAMPLES launches, must be within the limit with the upper end of its interval; a single launch has no
    interval, and counts only where the best rests on no more itself.

    Args:
        rankings: of all problems.
        limits: what it may cost.
        margin: lead over the baseline that a row needs to ship.
        alone: spaces that a consumer runs without any other.
    """
    groups: defaultdict[tuple[str, Problem], list[tuple[Problem, dict[Config, Pick]]]] = defaultdict(list)
    for ranking in rankings:
        for space, contenders in _served(ranking, margin, alone):
            picks = {pick.config: pick for pick in _admissible(ranking.problem, contenders, limits.worst)}
            groups[space, family(ranking.problem)].append((ranking.problem, picks))
    chosen: defaultdict[str, set[Config]] = defaultdict(set)
    found: list[Pick] = []
    for (space, _), group in sorted(groups.items(), key=lambda item: (item[0][0], repr(item[0][1]))):
        demands = [Demand(problem.weight, {c: p.loss for c, p in picks.items()}) for problem, picks in group]
        serving = cover(demands, limits.mean, chosen[space])
        chosen[space].update(serving)
        found += [picks[config] for (_, picks), config in zip(group, serving, strict=True)]
    return Portfolio(limits, tuple(found))


def family(problem: Problem) -> Problem:
    """What a problem's kernels are compiled for, whatever the sizes: the same with every size 1."""
    return replace(problem, m=1, n=1, k=1, batch=1, weight=1.0)


def _served(ranking: Ranking, margin: float, alone: Set[str]) -> Iterator[tuple[str, list[Contender]]]:
    """The spaces in which the problem is served, with the contenders that may, the best first."""
    fastest, baseline = ranking.fastest, ranking.baseline
    leading = None
    if fastest is not baseline and ranking.may_ship(fastest, margin):
        leading = fastest.choice.space
        yield leading, [c for c in _of_space(ranking, leading) if ranking.may_ship(c, margin)]
    for space in sorted(alone - {leading}):
        contenders = _of_space(ranking, space)
        if contenders:
            yield space, contenders


def _of_space(ranking: Ranking, space: str) -> list[Contender]:
    return [c for c in ranking.contenders if c.choice.space == space]


def _admissible(problem: Problem, contenders: Sequence[Contender], worst: float) -> Iterator[Pick]:
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
