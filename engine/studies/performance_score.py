"""Performance score P of Willemsen et al.: how far a search stays ahead of random search over its time.

"A methodology for comparing optimization algorithms for auto-tuning", FGCS 159 (2024),
doi 10.1016/j.future.2024.05.021. The package autotuning_methodology 1.1.0 defines the details. It fits its regression
to random parts of the data; this module fits all data, so that a score is reproducible: see experiments/peers.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Status, Trial

_START, _END = 0.01, 0.95
"""Fractions of the way from the median to the optimum at which random search starts and ends the score's range."""

_STEPS = 1000
"""Points in time that the score averages (`resolution` in experiments_defaults.json)."""

_Floats = NDArray[np.float64]


class PerformanceScore:
    """Scores searches of one landscape against random search.

    Time is the recorded cost of the evaluations, failures included. Without recorded costs, each evaluation costs one
    unit.
    """

    evaluations: tuple[int, int] | None
    """First and last evaluation of random search in the score's range; None where the score is undefined.

    The score is undefined if nothing is ok, or if the median or random search is as good as the optimum.
    """

    def __init__(self, landscape: Landscape) -> None:
        """Compute the curve that random search is expected to follow."""
        points = [point for point in landscape.points.values() if point.status is not Status.INVALID]
        known = all(point.cost_seconds is not None for point in points)
        costs = np.array([(point.cost_seconds or 0.0) if known else 1.0 for point in points])
        works = np.array([point.time_ns is not None for point in points])
        self._cost = dict(zip((point.config for point in points), costs.tolist(), strict=True))
        self._sorted = np.sort([point.time_ns for point in points if point.time_ns is not None])
        self._usual = float(np.median(costs))
        self._times: _Floats = np.empty(0)
        self._random: _Floats = np.empty(0)
        self.evaluations = self._range() if works.any() else None
        if self.evaluations is None:
            return
        first, last = self.evaluations
        self._times = np.linspace(first * self._usual, last * self._usual, _STEPS)
        # A failure is expected to cost its share on top of what the successes cost (`total_time_mean_per_feval`).
        mean = costs[works].mean() + (0.0 if works.all() else costs[~works].mean() * (~works).mean())
        draws = np.round(np.maximum(self._times / mean, 1)).astype(int)
        self._random = self._expected(draws)
        if (self._random <= self._sorted[0]).any():
            self.evaluations = None

    def score(self, searches: Sequence[Sequence[Trial]]) -> float | None:
        """Return P of several searches: 0 for random search, 1 for the optimum from the start.

        An isotonic regression over the ranks of all searches gives the best found per time. A search that ended early
        keeps its last best. Return None where the score is undefined, or a search found nothing before its range ended.
        """
        scored = self.by_search(searches)
        return None if scored is None else scored[0]

    def by_search(self, searches: Sequence[Sequence[Trial]]) -> tuple[float, _Floats] | None:
        """Return P of several searches, and values per search for both ends of its interval; None as in `score`.

        P follows the mean rank over the searches: a search moves P by its distance from that mean times P's slope. The
        slope changes near the optimum, so it is the chord over two standard errors of the mean rank: behind it for the
        lower end, ahead of it for the upper end. The values, shape (3, searches), are P without its rounding of ranks
        plus what each search moves, for both ends, and how far ahead of random search each search ends.
        """
        steps = [] if self.evaluations is None else [*map(self._steps, searches)]
        if not steps or not all(len(times) and times[0] <= self._times[-1] for times, _ in steps):
            return None
        time, rank = (np.concatenate(each) for each in zip(*steps, strict=True))
        margin = 0.1 + 0.25 * len(steps) / len(time)
        near = (time >= (1 - margin) * self._times[0]) & (time <= (1 + margin) * self._times[-1])
        if not near.any():
            return None
        fit = _descending(time[near], rank[near], self._times)
        ranks = np.array([np.interp(self._times, *each) for each in steps])
        mean = ranks.mean(axis=0)
        reach = np.maximum(2 * ranks.std(axis=0) / math.sqrt(max(len(ranks) - 1, 1)), 0.5)  # P rounds to a rank
        ends = mean + reach, np.maximum(mean - reach, -1e-9)  # below 0, as a mean of 0 has no chord to 0
        slopes = [(self._ahead(end) - self._ahead(mean)) / (end - mean) for end in ends]
        values = np.mean(self._ahead(fit)) + slopes @ (ranks - mean).T / len(mean)
        return float(np.mean(self._ahead(np.round(fit)))), np.vstack([values, self._ahead(np.round(ranks))[:, -1]])

    def _steps(self, trials: Sequence[Trial]) -> tuple[_Floats, NDArray[np.int_]]:
        """Return times from the first success to the end of the range, and the rank of the best found by then."""
        spent = np.cumsum([self._cost[trial.config] for trial in trials])
        best = np.minimum.accumulate([math.inf if trial.score is None else trial.score for trial in trials])
        known = np.isfinite(best)
        if not known.any():
            return np.empty(0), np.empty(0, dtype=int)
        later = np.arange(spent[-1] + self._usual, 1.2 * self._times[-1], self._usual)
        best = np.concatenate([best[known], np.full(len(later), best[-1])])
        return np.concatenate([spent[known], later]), np.searchsorted(self._sorted, best)

    def _ahead(self, ranks: _Floats) -> _Floats:
        """Return how far ahead of random search these ranks are per time: 1 is the optimum."""
        curve = np.interp(ranks, np.arange(len(self._sorted)), self._sorted)
        ahead: _Floats = (curve - self._random) / (self._sorted[0] - self._random)
        return ahead

    def _range(self) -> tuple[int, int] | None:
        first, last = self._reached(_START), self._reached(_END)
        if first is None or last is None:
            return None
        if last - first < 2:
            first, last = (first, last + 2) if first == 0 else (first - 1, last + 1)
        return first, last

    def _reached(self, share: float) -> int | None:
        """Return the evaluations that random search needs for this share of the way from the median to the optimum."""
        worst_first = self._sorted[::-1]
        optimum, median = self._sorted[0], np.median(self._sorted)
        rank = int(np.argmax(worst_first <= optimum + (median - optimum) * (1 - share)))
        if worst_first[rank] == optimum:
            rank -= 1
        return math.ceil(rank / (len(worst_first) + 1 - rank)) if rank >= 0 else None

    def _expected(self, draws: NDArray[np.int_]) -> _Floats:
        """Return the expected best of so many draws without replacement, smoothed over the draws, shape (times,)."""
        from scipy.interpolate import PchipInterpolator

        count = len(self._sorted)
        ranks = np.minimum(np.round(draws * (count + 1) / (draws + 1)), count - 1).astype(int)
        values: _Floats = self._sorted[::-1][ranks]
        steps, first = np.unique(draws, return_index=True)
        if len(steps) < 2:
            return values
        smooth: _Floats = PchipInterpolator(steps, values[first])(np.linspace(draws[0], draws[-1], len(draws)))
        return smooth


def _descending(times: _Floats, ranks: NDArray[np.int_], at: _Floats) -> _Floats:
    """Return the non-increasing least-squares fit of ranks over times, between its points and flat beyond them."""
    from scipy.optimize import isotonic_regression  # takes half a second to import

    unique, places, counts = np.unique(times, return_inverse=True, return_counts=True)
    fit = isotonic_regression(np.bincount(places, ranks) / counts, weights=counts, increasing=False)
    found: _Floats = np.interp(at, unique, fit.x)
    return found
