"""Gaussian process over the configs of a task and the trials of other tasks, for spaces without config features."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.config import Config, Param, Value
from gemmtune.engine.records.search import Search, SourceTask
from gemmtune.engine.records.workload import OUTPUT_SIZES
from gemmtune.engine.search.encoding import Encoding, values_by_name
from gemmtune.engine.search.models import kernel
from gemmtune.engine.search.models.coordinates import Reals, param_coordinates
from gemmtune.engine.search.models.source_trials import fair_share, has_new_fact, select_trials, usable_sources
from gemmtune.engine.search.task_features import SIZE_PREFIX, SM_COUNT

# experiments/search/unseen.py judges these on imitations of unknown kernels.
_MAX_TRIALS = 96
"""Largest number of trials of other tasks."""
_MAX_TASKS = 12
"""Largest number of other tasks, the nearest by their features."""
_CONSTANT_VARIANCE = 30.0
"""Prior variance of each task's constant, in units of the signal's variance."""
_CORRELATIONS = (0.2, 0.5, 0.7, 0.85, 0.95, 0.99)
"""Candidate correlations between two tasks with equal features."""
_FEATURE_UNIT = 4.0
"""Difference of a task's feature that counts as one; sizes are logarithms to base 2."""
_WASTE_SHARES = (0.0, 0.2, 0.6, 2.0, 6.0)
"""Candidate prior variances of the effect of waste, in units of the signal's variance."""
_SMALLEST_TILE = 16
"""Smallest maximum of a parameter that may be a side of a tile."""
_DEFAULT_SMS = 132
"""Number of streaming multiprocessors where the GPU is unknown."""
_DEVIATION = 0.5
"""Share of the standard deviation to count on: slow configs vary most, and their variance is that of all."""


class JointProcess:
    """Gaussian process of one task's outcomes and of trials of other tasks.

    The covariance of two configs is a product of one Matérn 5/2 factor per parameter and one for their tasks. The
    tasks' factor is a Matérn 5/2 kernel of their features times a correlation, or 1 within a task. Within a task a
    constant of large variance is added, since the level of each task is its own. A linear kernel adds the effect of
    waste, which all tasks share.
    """

    def __init__(self, search: Search, sources: Sequence[SourceTask]) -> None:
        """Fit the kernel to the trials of `sources`, which share the parameters of the search."""
        sources, features = _nearest(search, sources)
        share = fair_share([len(source.trials) for source in sources], _MAX_TRIALS)
        chosen = [select_trials(source, share) for source in sources]
        configs = [trial.config for trials, _ in chosen for trial in trials]
        self._count = len(search.feasible)
        numbers = [number for number, (trials, _) in enumerate(chosen) for _ in trials]
        self._task: NDArray[np.intp] = np.array([len(sources)] * self._count + numbers)
        self._slowness = np.concatenate([slowness for _, slowness in chosen])
        params = _coordinates(search.params, [*search.feasible, *configs])
        facts = [source.features(source.trials[0].config) for source in sources]
        facts.append(search.features(search.feasible[0]))
        self._waste = _waste(facts, self._task, [*search.feasible, *configs])
        self._waste_squared: Reals = (self._waste**2).sum(axis=1)
        levels = [np.unique(column, return_inverse=True) for column in params.T]
        self._levels: list[NDArray[np.intp]] = [level for _, level in levels]
        self._apart = [_squares(values) for values, _ in levels]
        self._tasks_apart = np.array([_squares(column) for column in features.T]).reshape(-1, *[len(features)] * 2)
        centres = [kernel.central_length(len(levels))] * len(levels) + [0.0] * len(self._tasks_apart)
        self._centre = np.array(centres)
        self._lengths = self._centre.copy()
        self._noise, self._correlation, self._waste_share = 1e-3, 0.85, _WASTE_SHARES[2]
        self._rows = list(range(self._count, len(self._task)))  # the trials of other tasks, then this one's configs
        self._outcomes: list[float] = []
        self._fitted = 0
        self._factor: Reals = np.empty((0, 0))
        self._reduced: Reals = np.empty((0, self._count))
        self._explained: Reals = np.empty(self._count)
        self._fit()
        self._condition()

    @classmethod
    def of(cls, search: Search) -> "JointProcess | None":
        """Return the process with the search's history; None without one that applies."""
        if not search.feasible:
            return None
        here = search.features(search.feasible[0])
        sources = [s for s in usable_sources(search.history) if list(s.features(s.trials[0].config)) == list(here)]
        there = np.array([list(source.features(source.trials[0].config).values()) for source in sources])
        if not sources or has_new_fact(list(here), there, np.array([list(here.values())])):
            return None
        return cls(search, sources)

    def add(self, position: int) -> None:
        """Add the config at `position` as evaluated; `tell` brings its outcome later."""
        n = len(self._rows)
        column = self._reduced[:, position].copy()
        own = float(self._own_variances[position]) + self._noise
        pivot = math.sqrt(max(own - float(column @ column), 1e-9))
        everywhere = self._covariances([position], range(self._count))[0]
        row = (everywhere - column @ self._reduced) / pivot
        self._reduced = np.vstack([self._reduced, row])
        factor = np.zeros((n + 1, n + 1))
        factor[:n, :n], factor[n, :n], factor[n, n] = self._factor, column, pivot
        self._factor = factor
        self._explained += row * row
        self._rows.append(position)

    def tell(self, outcomes: Sequence[float]) -> None:
        """Add the outcomes of the configs added since the last call, in their order; NaN stands for a failure."""
        self._outcomes.extend(outcomes)
        if kernel.is_fit_due(len(self._outcomes), self._fitted):
            self._fit()
            self._condition()
            self._fitted = len(self._outcomes)

    def improvement(self) -> Reals:
        """Return each config's expected improvement over the best outcome, shape (configs,).

        Before the first outcome, return by how much the other tasks let expect each config to be faster, up to a
        constant; what is unsure counts for a config, so that a first batch spreads.
        """
        targets = self._targets()
        told = len(targets)
        weights, variance = _weigh(np.ascontiguousarray(self._factor[:told, :told]), targets)
        mean: Reals = weights @ self._reduced[:told]
        unexplained = np.maximum(self._own_variances[: self._count] - self._explained, 1e-9)
        deviation = _DEVIATION * np.sqrt(variance * unexplained)
        return kernel.expected_improvement(mean, deviation) if self._outcomes else deviation - mean

    def _targets(self) -> Reals:
        """Return the slowness of the other tasks' trials, and this task's outcomes relative to the best of them."""
        return np.concatenate([self._slowness, kernel.above_best(self._outcomes)])

    def _fit(self) -> None:
        """Choose length scales, effect of waste, noise and correlation by the posterior density."""
        used, targets = np.array(self._rows[: len(self._slowness) + len(self._outcomes)]), self._targets()
        n = len(used)
        rows, columns = np.tril_indices(n, -1)
        tasks = self._task[used][rows], self._task[used][columns]
        levels = [(level[used][rows], level[used][columns]) for level in self._levels]
        constant = np.where(tasks[0] == tasks[1], _CONSTANT_VARIANCE, 0.0)
        waste, waste_squared = (self._waste[used] @ self._waste[used].T)[rows, columns], self._waste_squared[used]
        matrix = np.zeros((n, n), order="F")  # LAPACK reads the lower half alone
        flat = matrix.reshape(-1, order="F")
        below, diagonal = rows + n * columns, np.arange(n) * (n + 1)

        @cache
        def factor(axis: int, length: float) -> Reals:
            factors: Reals = self._axis(axis, length)[levels[axis]]
            return factors

        def cost(lengths: Reals, share: float, noise: float, correlation: float) -> float:
            """Return the negative logarithm of the posterior density."""
            near = self._tasks(lengths, correlation)[tasks]
            for axis in range(len(levels)):
                near *= factor(axis, float(lengths[axis]))
            flat[below] = near + constant + share * waste
            flat[diagonal] = 1 + _CONSTANT_VARIANCE + noise + share * waste_squared
            lower = kernel.factorise(matrix)
            variance = _weigh(lower, targets)[1]
            prior = np.sum(((lengths - self._centre) / kernel.LENGTH_SPREAD) ** 2)
            density = 0.5 * n * math.log(variance) + np.log(np.diag(lower)).sum() + 0.5 * prior
            return round(float(density), 6)

        share, noise, correlation = self._waste_share, self._noise, self._correlation
        lengths = kernel.ascend(self._lengths, lambda lengths: cost(lengths, share, noise, correlation))
        share = min(_WASTE_SHARES, key=lambda value: cost(lengths, value, noise, correlation))
        noise = min(kernel.NOISES, key=lambda value: cost(lengths, share, value, correlation))
        correlation = min(_CORRELATIONS, key=lambda value: cost(lengths, share, noise, value))
        self._lengths, self._waste_share, self._noise, self._correlation = lengths, share, noise, correlation

    def _condition(self) -> None:
        """Recompute the rows L⁻¹ K(evaluated, configs), as GaussianProcess has them."""
        self._tables = [self._axis(axis, float(self._lengths[axis])) for axis in range(len(self._levels))]
        self._between = self._tasks(self._lengths, self._correlation)
        noisy = self._covariances(self._rows, self._rows)
        self._own_variances = 1 + _CONSTANT_VARIANCE + self._waste_share * self._waste_squared
        noisy[np.diag_indices(len(noisy))] = self._own_variances[self._rows] + self._noise
        self._factor = kernel.factorise(noisy)
        self._reduced = kernel.reduce(self._factor, self._covariances(self._rows, range(self._count)))
        self._explained = (self._reduced**2).sum(axis=0)

    def _axis(self, axis: int, length: float) -> Reals:
        """Return the factor of a parameter's coordinate, shape (levels, levels)."""
        return kernel.matern(self._apart[axis] * math.exp(-2 * length))

    def _tasks(self, lengths: Reals, correlation: float) -> Reals:
        """Return the factor of the tasks, shape (tasks, tasks)."""
        scales = np.exp(-2 * lengths[len(self._levels) :])
        table = correlation * kernel.matern(np.tensordot(scales, self._tasks_apart, axes=1))
        np.fill_diagonal(table, 1.0)
        return table

    def _covariances(self, some: Sequence[int], others: Sequence[int]) -> Reals:
        """Return the covariances of rows, in units of the signal's variance, shape (some, others)."""
        there = slice(others.start, others.stop) if isinstance(others, range) else others
        covariances: Reals = self._between[self._task[some]][:, self._task[there]]
        for table, level in zip(self._tables, self._levels, strict=True):
            covariances *= table[level[some]][:, level[there]]
        covariances += self._waste_share * (self._waste[some] @ self._waste[there].T)
        covariances[self._task[some][:, None] == self._task[there]] += _CONSTANT_VARIANCE
        return covariances


def _weigh(factor: Reals, targets: Reals) -> tuple[Reals, float]:
    """Return the reduced targets, and the estimate of the signal's variance."""
    weights = kernel.reduce(factor, targets)
    prior = kernel.PRIOR_WEIGHT * kernel.PRIOR_VARIANCE
    return weights, float((weights @ weights + prior) / (len(targets) + kernel.PRIOR_WEIGHT))


def _squares(values: Reals) -> Reals:
    """Return the squared differences of all pairs, shape (values, values)."""
    squares: Reals = (values[:, None] - values) ** 2
    return squares


def _nearest(search: Search, sources: Sequence[SourceTask]) -> tuple[list[SourceTask], Reals]:
    """Return the nearest source tasks, and the features that differ, per source task and last of this task."""
    features = [source.features(source.trials[0].config) for source in sources]
    features.append(search.features(search.feasible[0]))
    rows = np.array([list(each.values()) for each in features], np.float64).reshape(len(features), -1)
    rows = rows[:, np.ptp(rows, axis=0) > 0] / _FEATURE_UNIT
    order = np.argsort(((rows[:-1] - rows[-1]) ** 2).sum(axis=1), kind="stable")[:_MAX_TASKS]
    return [sources[i] for i in order], rows[[*order, -1]]


def _waste(facts: Sequence[Mapping[str, float]], task: NDArray[np.intp], configs: Sequence[Config]) -> Reals:
    """Return by how much full waves of tiles exceed the output, per pair of parameters, shape (configs, pairs).

    Which parameters are the sides of a tile is unknown, so every ordered pair that may be is one column, a logarithm.

    Args:
        facts: features per task, with sizes as logarithms to base 2.
        task: index of each config's task in `facts`.
        configs: configs of the tasks.
    """
    names = [SIZE_PREFIX + name for name in OUTPUT_SIZES]
    if not all(name in fact for fact in facts for name in names):
        return np.empty((len(configs), 0))
    height, width = (np.array([round(2 ** fact[name]) for fact in facts])[task] for name in names)
    sms = np.array([round(2 ** fact[SM_COUNT]) if SM_COUNT in fact else _DEFAULT_SMS for fact in facts])[task]
    sides = [np.array(values, np.float64) for values in values_by_name(configs).values() if _may_be_sides(values)]
    columns = []
    for rows, cols in permutations(sides, 2):
        waves = np.ceil(np.ceil(height / rows) * np.ceil(width / cols) / sms)
        columns.append(np.log(waves * sms * rows * cols / (height * width)))
    return np.array(columns).reshape(-1, len(configs)).T / math.sqrt(max(len(columns), 1))


def _may_be_sides(values: Sequence[Value]) -> bool:
    """Return whether a parameter's values, one per config, may be the sides of tiles."""
    sizes = {value for value in values if isinstance(value, int) and not isinstance(value, bool) and value > 0}
    return sizes == set(values) and len(sizes) > 1 and max(sizes) >= _SMALLEST_TILE


def _coordinates(params: Sequence[Param], configs: Sequence[Config]) -> Reals:
    """Return the coordinates of configs that may have values which the task lacks, shape (configs, coordinates)."""
    found = values_by_name(configs)
    known = [replace(param, values=_merged(param, found[param.name])) for param in params]
    unique = list(dict.fromkeys(configs))
    encoding = Encoding(known, unique)
    return param_coordinates(encoding)[[encoding.position(config) for config in configs]]


def _merged(param: Param, found: Sequence[Value]) -> tuple[Value, ...]:
    """Return the values of a parameter and those found, ascending where the parameter is ordered."""
    merged = list(dict.fromkeys([*param.values, *found]))
    return tuple(sorted(merged, key=float) if param.ordered else merged)
