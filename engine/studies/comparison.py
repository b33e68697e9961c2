"""Compare samplers on recorded landscapes: best-so-far curves, evaluations to a goal, and the performance score."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.errors import LandscapeError
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.studies.intervals import mean_interval
from gemmtune.engine.studies.performance_score import PerformanceScore
from gemmtune.engine.studies.ranking import Ranking, ranking
from gemmtune.engine.studies.sampler_study import Replay, TimedReplay, labels

BUDGETS = (16, 32, 64, 128)
"""Evaluations at which the report shows the curves, up to the budget."""
GOALS = (0.95, 0.99)
"""Fractions of the optimum for which the report counts evaluations."""

_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reached:
    """Evaluations until a fraction of the optimum was found."""

    median: int | None
    """Evaluations of the median search, of an even number the later of the middle two; None if it never found it."""
    share: float
    """Share of the searches that found it."""


@dataclass(frozen=True, slots=True)
class Score:
    """Performance score P with its 95 % interval: `mean_interval` of `PerformanceScore.by_search`.

    This is the infinitesimal jackknife (B. Efron, The Jackknife, the Bootstrap and Other Resampling Plans, SIAM 1982,
    chapter 6) with chords for tangents. All seeds share the chords, which spends a further degree of freedom. The ends
    are rounded outwards to two digits, and hold P, which rounds ranks. Coverage: see experiments/search.
    """

    value: float
    """Score P: 0 for random search, 1 for the optimum from the start."""
    low: float | None
    """Lower end of the interval; None where `mean_interval` has none."""
    high: float | None
    """Upper end of the interval, at most 1; None where `low` is."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Best-so-far curve of one arm, on one landscape or over all of them."""

    arm: str
    """Name of the sampler or other search."""
    landscape: str
    """Name of the landscape; empty for the mean over all."""
    mean: tuple[float, ...]
    """Optimum / best found after 1 to budget evaluations, mean over the seeds; 0 before the first success."""
    low: tuple[float | None, ...]
    """Lower ends of the 95 % intervals over the seeds, at least 0; None where `mean_interval` has none."""
    high: tuple[float | None, ...]
    """Upper ends of the 95 % intervals, at most 1; None where `low` is."""
    reached: Mapping[float, Reached]
    """Evaluations to each fraction of the optimum in `GOALS`."""
    score: Score | None
    """Score P, over several landscapes the mean of those where all arms have one; None where P is undefined, the budget
    is too small for it, or a search found nothing by the end of its range."""

    def to_json(self) -> dict[str, object]:
        """Return the curve, rounded to five digits."""
        return {
            "arm": self.arm,
            "landscape": self.landscape or None,
            "fraction_of_optimum": [round(value, 5) for value in self.mean],
            "low": [value if value is None else round(value, 5) for value in self.low],
            "high": [value if value is None else round(value, 5) for value in self.high],
            "evaluations_to": {
                str(goal): {"median": reached.median, "share": round(reached.share, 4)}
                for goal, reached in self.reached.items()
            },
            "score": self.score and {name: value and round(value, 4) for name, value in asdict(self.score).items()},
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Arms on the same landscapes with the same budget and seeds."""

    budget: int
    """Evaluations per search, failures included."""
    seeds: int
    """Searches per arm and landscape."""
    landscapes: tuple[str, ...]
    """Names of the landscapes."""
    ranges: tuple[tuple[int, int] | None, ...]
    """First and last evaluation of random search that P covers, per landscape; None where P is undefined."""
    curves: tuple[Curve, ...]
    """Curves of each arm in turn: over all landscapes, then on each."""
    ranking: Ranking | None = None
    """Arms by their ranks after the whole budget, and tests of each pair; None for a single arm."""

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return tuple(dict.fromkeys(curve.arm for curve in self.curves))

    def curve(self, arm: str, landscape: str = "") -> Curve:
        """Return the curve of one arm on one landscape, or over all.

        Raises:
            KeyError: no such arm or landscape.
        """
        return {(curve.arm, curve.landscape): curve for curve in self.curves}[arm, landscape]

    def to_json(self) -> dict[str, object]:
        """Return the object that `gemmtune compare` writes."""
        return {
            "budget": self.budget,
            "seeds": self.seeds,
            "landscapes": [
                {"name": name, "score_range": found} for name, found in zip(self.landscapes, self.ranges, strict=True)
            ],
            "ranking": self.ranking and asdict(self.ranking),
            "curves": [curve.to_json() for curve in self.curves],
        }


def compare(landscapes: Sequence[Landscape], found: Mapping[str, Iterable[Replay]], budget: int) -> Comparison:
    """Compare arms by their trials.

    Args:
        landscapes: the landscapes that were searched.
        found: replays per arm, one per seed: the trials on each of the landscapes, in their order.
        budget: evaluations per search; a search that ended earlier keeps its last best.

    Raises:
        ValueError: an arm has no replay, arms differ in their number of replays, or one does not fit the landscapes.
    """
    names = tuple(labels(landscapes))
    scorers = [PerformanceScore(landscape) for landscape in landscapes]
    fractions: dict[str, list[_Floats]] = {}
    scores: dict[str, list[tuple[float, _Floats] | None]] = {}
    for arm, replays in found.items():
        searches = [list(of_landscape) for of_landscape in zip(*replays, strict=True)]
        if len(searches) != len(landscapes):
            raise ValueError(f"arm {arm}: {len(searches)} searches per replay for {len(landscapes)} landscapes")
        fractions[arm] = [
            np.array([_fractions(landscape, trials, budget) for trials in of_landscape])
            for landscape, of_landscape in zip(landscapes, searches, strict=True)
        ]
        scores[arm] = [
            scorer.by_search(of_landscape) if scorer.evaluations and scorer.evaluations[1] <= budget else None
            for scorer, of_landscape in zip(scorers, searches, strict=True)
        ]
    counts = {arm: len(of_arm[0]) for arm, of_arm in fractions.items()}
    if len(set(counts.values())) != 1:
        raise ValueError(f"arms with different numbers of replays: {counts}")
    has_all = [all(of_landscape) for of_landscape in zip(*scores.values(), strict=True)]
    curves: list[Curve] = []
    for arm, of_arm in fractions.items():
        curves.append(_curve(arm, "", of_arm, list(compress(scores[arm], has_all))))
        curves += [_curve(arm, n, [f], [s]) for n, f, s in zip(names, of_arm, scores[arm], strict=True)]
    ends = {arm: np.array([of_landscape[:, -1] for of_landscape in of_arm]) for arm, of_arm in fractions.items()}
    return Comparison(budget, counts[arm], names, tuple(s.evaluations for s in scorers), tuple(curves), ranking(ends))


@dataclass(frozen=True, slots=True)
class SecondsCurve:
    """Best-so-far curve of one arm on one landscape over seconds."""

    arm: str
    """Name of the sampler or other search."""
    landscape: str
    """Name of the landscape."""
    seconds: tuple[float, ...]
    """Recorded seconds of the evaluations that had ended, with the sampler's own where they are known."""
    mean: tuple[float, ...]
    """Optimum / best found by then, mean over the seeds; 0 before the first success."""


def curves_over_seconds(
    landscapes: Sequence[Landscape], found: Mapping[str, Sequence[Replay]], steps: int = 200
) -> list[SecondsCurve]:
    """Return each arm's curve on each landscape in turn, up to the second at which its last search ends.

    Raises:
        LandscapeError: no config of a landscape has recorded seconds, or one that is ok and was evaluated has none.
    """
    curves = []
    for number, (name, landscape) in enumerate(zip(labels(landscapes), landscapes, strict=True)):
        if not any(map(_has_seconds, landscape.points.values())):
            raise LandscapeError(f"{name} has no recorded seconds: add the column cost.seconds to its file")
        for arm, replays in found.items():
            ends, fractions = [], []
            for replay in replays:
                trials = replay[number]
                points = [landscape.points[trial.config] for trial in trials]
                if gap := next((p for p in points if p.status is Status.OK and not _has_seconds(p)), None):
                    raise LandscapeError(f"{name} has no recorded seconds of {gap.config}: fill its cost.seconds")
                cost = np.cumsum([point.wall_seconds for point in points])
                own = replay.sampler_seconds[number] if isinstance(replay, TimedReplay) else np.zeros(len(cost))
                ends.append(cost + own)
                fractions.append(np.append(0.0, _fractions(landscape, trials, max(1, len(trials)))))
            seconds = np.linspace(0.0, max((end[-1] for end in ends if len(end)), default=0.0), steps)
            by_then = [f[np.searchsorted(end, seconds, "right")] for f, end in zip(fractions, ends, strict=True)]
            mean = np.mean(by_then, axis=0)
            curves.append(SecondsCurve(arm, name, tuple(seconds.tolist()), tuple(mean.tolist())))
    return curves


def _has_seconds(point: Point) -> bool:
    return bool(point.samples_ns) or point.cost_seconds is not None or point.build_seconds is not None


def _fractions(landscape: Landscape, trials: Sequence[Trial], budget: int) -> _Floats:
    """Return optimum / best found after each evaluation, shape (budget,)."""
    scores = [math.inf if trial.score is None else trial.score for trial in trials[:budget]]
    best = np.minimum.accumulate(np.array(scores + [math.inf] * (budget - len(scores))))
    # A landscape without a success has no optimum to ask for.
    return landscape.optimum_ns / best if np.isfinite(best[-1]) else np.zeros_like(best)


def _curve(
    arm: str, landscape: str, fractions: Sequence[_Floats], scores: Sequence[tuple[float, _Floats] | None]
) -> Curve:
    """Return a curve from each landscape's fractions, shape (seeds, budget), and its P by search."""
    by_seed = np.mean(fractions, axis=0)
    intervals = (np.clip(ends, 0.0, 1.0).tolist() for ends in mean_interval(by_seed, len(fractions)))
    low, high = (tuple(None if math.isnan(end) else end for end in ends) for ends in intervals)
    reached = {goal: _reached(np.concatenate(fractions), goal) for goal in GOALS}
    return Curve(arm, landscape, tuple(by_seed.mean(axis=0).tolist()), low, high, reached, _score(scores))


def _reached(searches: _Floats, goal: float) -> Reached:
    there = searches >= goal
    first = np.where(there.any(axis=1), there.argmax(axis=1) + 1.0, math.inf)
    median = float(np.sort(first)[len(first) // 2])
    return Reached(int(median) if math.isfinite(median) else None, float(np.isfinite(first).mean()))


def _score(scores: Sequence[tuple[float, _Floats] | None]) -> Score | None:
    """Return the mean over the landscapes that have a score; a seed moves P on all of them at once."""
    known = [of_landscape for of_landscape in scores if of_landscape is not None]
    if not known:
        return None
    value, by_seed = float(np.mean([each for each, _ in known])), np.mean([each for _, each in known], axis=0)
    (low, _), (_, high) = np.transpose(mean_interval(by_seed[:2].T, len(known), 2, by_seed[2, :, None])).tolist()
    if math.isnan(low + high):
        return Score(value, None, None)
    low, high = math.floor(100 * min(low, value)) / 100, math.ceil(100 * max(high, value)) / 100
    return Score(value, low, min(1.0, high))
