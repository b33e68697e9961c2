"""Samplers side by side: what each had found after so many evaluations, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.studies.performance_score import Scale
from gemmtune.engine.studies.sampler_study import Campaign, labels

__all__ = ["BUDGETS", "GOALS", "Comparison", "Course", "Reached", "Score", "compare"]

BUDGETS = (16, 32, 64, 128)
"""Evaluations the table tells of, up to the budget."""
GOALS = (0.95, 0.99)
"""Fractions of the optimum whose evaluations the table counts."""

_RESAMPLES = 200

_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reached:
    """Evaluations until a fraction of the optimum was found."""

    median: int | None
    """In the median search; None where half of them or more did not get there."""
    share: float
    """Share of the searches that got there."""


@dataclass(frozen=True, slots=True)
class Score:
    """The performance score P, with its 95 % interval over the searches (percentiles of resampled searches)."""

    value: float
    """0 as random search, 1 for the optimum from the start."""
    low: float
    """Lower end of the interval; the value itself where there is one search."""
    high: float
    """Upper end."""


@dataclass(frozen=True, slots=True)
class Course:
    """One arm on one landscape, or on all of them."""

    arm: str
    """The arm's name."""
    landscape: str
    """The landscape's name; empty for all."""
    mean: tuple[float, ...]
    """Mean over the seeds of optimum over best found, after 1 to budget evaluations; 0 before the first success."""
    low: tuple[float, ...]
    """Lower end of its 95 % interval over the seeds (Student's t); the mean itself where there is one seed."""
    high: tuple[float, ...]
    """Upper end."""
    reached: Mapping[float, Reached]
    """By fraction of the optimum, one of `GOALS`."""
    score: Score | None
    """P; None where the landscape has none, or the budget does not cover its range. Over all landscapes the mean of
    those that have one."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Arms on the same landscapes with the same budget and seeds."""

    budget: int
    """Evaluations a search, failures included."""
    seeds: int
    """Searches an arm and landscape."""
    landscapes: tuple[str, ...]
    """Their names."""
    ranges: tuple[tuple[int, int] | None, ...]
    """Of each landscape the first and last evaluation of random search that P looks at."""
    courses: tuple[Course, ...]
    """Arm by arm, each over all landscapes first, and then on each."""

    @property
    def arms(self) -> tuple[str, ...]:
        """The names of the arms."""
        return tuple(dict.fromkeys(course.arm for course in self.courses))

    def of(self, arm: str, landscape: str = "") -> Course:
        """One arm on one landscape, or over all.

        Raises:
            KeyError: there is no such arm or landscape.
        """
        for course in self.courses:
            if (course.arm, course.landscape) == (arm, landscape):
                return course
        raise KeyError((arm, landscape))

    def to_json(self) -> dict[str, object]:
        """The object that `gemmtune compare` writes."""
        return {
            "budget": self.budget,
            "seeds": self.seeds,
            "landscapes": [
                {"name": name, "score_range": found} for name, found in zip(self.landscapes, self.ranges, strict=True)
            ],
            "courses": [_course_record(course) for course in self.courses],
        }


def compare(landscapes: Sequence[Landscape], found: Mapping[str, Iterable[Campaign]], budget: int) -> Comparison:
    """Put arms side by side.

    Args:
        landscapes: what was searched.
        found: by the arm's name, its campaigns: the trials on each of the landscapes, in their order, once a seed.
        budget: evaluations a search had; one that ended before has its last state until then.

    Raises:
        ValueError: an arm has no campaign, arms differ in the number of theirs, or one does not fit the landscapes.
    """
    names = labels(landscapes)
    scales = [Scale(landscape) for landscape in landscapes]
    courses: list[Course] = []
    counts: dict[str, int] = {}
    for arm, campaigns in found.items():
        searches = [list(of_landscape) for of_landscape in zip(*campaigns, strict=True)]
        if len(searches) != len(landscapes):
            raise ValueError(f"arm {arm}: {len(searches)} searches a campaign for {len(landscapes)} landscapes")
        counts[arm] = len(searches[0])
        fractions = [
            np.array([_fractions(landscape, trials, budget) for trials in of_landscape])
            for landscape, of_landscape in zip(landscapes, searches, strict=True)
        ]
        draws = [
            _scores(scale, of_landscape) if scale.evaluations and scale.evaluations[1] <= budget else None
            for scale, of_landscape in zip(scales, searches, strict=True)
        ]
        courses.append(_course(arm, "", fractions, draws))
        courses += [_course(arm, n, [f], [d]) for n, f, d in zip(names, fractions, draws, strict=True)]
    if len(set(counts.values())) != 1:
        raise ValueError(f"arms with different numbers of campaigns: {counts}")
    ranges = tuple(scale.evaluations for scale in scales)
    return Comparison(budget, next(iter(counts.values())), tuple(names), ranges, tuple(courses))


def _fractions(landscape: Landscape, trials: Sequence[Trial], budget: int) -> _Floats:
    scores = [math.inf if trial.score is None else trial.score for trial in trials[:budget]]
    best = np.minimum.accumulate(np.array(scores + [math.inf] * (budget - len(scores))))
    # Nothing found is 0; where nothing is there to be found, the landscape has no optimum to ask for.
    return landscape.optimum_ns / best if np.isfinite(best[-1]) else np.zeros_like(best)


def _scores(scale: Scale, searches: Sequence[Sequence[Trial]]) -> _Floats | None:
    """P of the searches, then of as many drawn from them with replacement, several times; None where there is no P."""
    value = scale.score(searches)
    if value is None:
        return None
    random = np.random.default_rng(0)  # an interval must not depend on what else was compared
    drawn = random.integers(len(searches), size=(_RESAMPLES if len(searches) > 1 else 0, len(searches)))
    again = [scale.score([searches[i] for i in row]) for row in drawn.tolist()]
    return np.array([value, *(score for score in again if score is not None)])


def _course(arm: str, landscape: str, fractions: Sequence[_Floats], draws: Sequence[_Floats | None]) -> Course:
    """A course out of seeds × budget fractions of each landscape, and the scores of each."""
    from scipy.special import stdtrit  # Student's t; scipy.stats takes a second to import

    by_seed = np.mean(fractions, axis=0)
    mean, seeds = by_seed.mean(axis=0), len(by_seed)
    half = np.zeros_like(mean)
    if seeds > 1:
        half = stdtrit(seeds - 1, 0.975) * by_seed.std(axis=0, ddof=1) / math.sqrt(seeds)
    return Course(
        arm,
        landscape,
        tuple(mean.tolist()),
        tuple(np.maximum(mean - half, 0.0).tolist()),
        tuple(np.minimum(mean + half, 1.0).tolist()),
        {goal: _reached(np.concatenate(fractions), goal) for goal in GOALS},
        _score(draws),
    )


def _reached(searches: _Floats, goal: float) -> Reached:
    there = searches >= goal
    first = np.where(there.any(axis=1), there.argmax(axis=1) + 1.0, math.inf)
    median = float(np.sort(first)[len(first) // 2])
    return Reached(int(median) if math.isfinite(median) else None, float(np.isfinite(first).mean()))


def _score(draws: Sequence[_Floats | None]) -> Score | None:
    """The mean over the landscapes that have a score; each of them is resampled by itself."""
    known = [of_landscape for of_landscape in draws if of_landscape is not None]
    if not known:
        return None
    count = min(map(len, known))
    means = np.mean([of_landscape[:count] for of_landscape in known], axis=0)
    low, high = np.percentile(means[1:], (2.5, 97.5)) if count > 1 else (means[0], means[0])
    return Score(float(means[0]), float(low), float(high))


def _course_record(course: Course) -> dict[str, object]:
    return {
        "arm": course.arm,
        "landscape": course.landscape or None,
        "fraction_of_optimum": [round(value, 5) for value in course.mean],
        "low": [round(value, 5) for value in course.low],
        "high": [round(value, 5) for value in course.high],
        "evaluations_to": {
            str(goal): {"median": reached.median, "share": round(reached.share, 4)}
            for goal, reached in course.reached.items()
        },
        "score": course.score and {name: round(getattr(course.score, name), 4) for name in ("value", "low", "high")},
    }
