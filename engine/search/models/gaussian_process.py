"""Gaussian process over a finite set of configs."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtrs
from scipy.special import ndtr

from gemmtune.engine.search.models.coordinates import Reals

__all__ = ["GaussianProcess"]

# experiments/search/choose.py chose these values.
_LENGTH_SCALE = 0.45
"""Prior median of a length scale, per square root of the number of coordinates."""
_LENGTH_SPREAD = 0.4
"""Prior standard deviation of the logarithm of a length scale."""
_LENGTH_STEP = math.log(2) / 2
"""Step of the logarithm of a length scale on the grid of candidates, √2; every machine picks the same grid point."""
_NOISES = (1e-5, 1e-3, 1e-2, 1e-1)
"""Candidate noise variances, in units of the signal's variance."""
_REFIT_GROWTH = 1.5
"""Factor by which the number of outcomes grows between two fits of the kernel."""
_MAX_OUTCOMES = 96
"""Largest number of outcomes the process is conditioned on: the best half, and others spread evenly over the rest."""
_REFIT_INTERVAL = 16
"""Largest number of new outcomes between two fits of the kernel."""
_PRIOR_VARIANCE = 0.01
"""Prior variance of the signal, a standard deviation of 10 % of a time."""
_PRIOR_WEIGHT = 0.2
"""Weight of the prior variance, in outcomes."""
_SHIFT_PRECISION = 1e-2
"""Inverse of the prior variance of the constant added to each mean."""


class GaussianProcess:
    """Gaussian process with one kernel and one posterior for each of several prior means.

    The kernel is Matérn 5/2 with one length scale per coordinate. The signal's variance and a constant added to the
    mean are set to their estimates. Outcomes are logarithms of times; lower is better.

    The rows of `_reduced` are L⁻¹ K(evaluated, all) (Rasmussen and Williams, Gaussian Processes for Machine Learning,
    2006, algorithm 2.1). They need no outcome, so a config in flight already reduces the variance of its neighbours.
    """

    def __init__(self, coordinates: Reals, means: Sequence[Reals]) -> None:
        """Start without outcomes.

        Args:
            coordinates: coordinates from 0 to 1, shape (configs, coordinates).
            means: prior means of shape (configs,), each up to a constant; the first one chooses the kernel.
        """
        self._coordinates = coordinates
        self._means = tuple(means)
        size = coordinates.shape[1]
        self._centre = math.log(_LENGTH_SCALE * math.sqrt(max(size, 1)))
        self._lengths: Reals = np.full(size, self._centre)
        self._noise = _NOISES[1]
        self._evaluated: list[int] = []
        self._outcomes: list[float] = []
        self._fitted = 0
        self._used: list[int] = []
        self._reduced: Reals = np.empty((0, len(coordinates)))
        self._factor: Reals = np.empty((0, 0))
        self._condition([])

    @property
    def outcomes(self) -> int:
        """Number of outcomes told so far."""
        return len(self._outcomes)

    def add(self, position: int) -> None:
        """Add the config at `position` as evaluated; `tell` brings its outcome later."""
        self._evaluated.append(position)
        n = len(self._used)
        if n == len(self._reduced):
            self._reduced = np.vstack([self._reduced, np.empty((max(n, 16), len(self._coordinates)))])
            factor = np.zeros((len(self._reduced), len(self._reduced)))
            factor[:n, :n] = self._factor[:n, :n]
            self._factor = factor
        column = self._reduced[:n, position].copy()
        pivot = math.sqrt(max(1 + self._noise - float(column @ column), 1e-9))
        row = (self._correlations([position])[0] - column @ self._reduced[:n]) / pivot
        self._reduced[n] = row
        self._explained += row * row
        self._factor[n, :n], self._factor[n, n] = column, pivot
        self._used.append(len(self._evaluated) - 1)

    def tell(self, outcomes: Sequence[float]) -> None:
        """Add the outcomes of the configs added since the last call, in their order; NaN stands for a failure."""
        self._outcomes.extend(outcomes)
        n = len(self._outcomes)
        if n >= min(max(_REFIT_GROWTH * self._fitted, 4), self._fitted + _REFIT_INTERVAL):
            self._used = _selected(_above_best(np.array(self._outcomes)))
            self._fit()
            self._condition(self._used)
            self._fitted = n

    def improvement(self, which: int) -> Reals:
        """Return each config's expected improvement over the best outcome under mean number `which`, shape (configs,).

        Source: Jones, Schonlau and Welch, Journal of Global Optimization 13, 1998.
        """
        mean, deviation = self._posterior(which)
        gain = -mean  # the best outcome is 0
        score = gain / deviation
        density = np.exp(-0.5 * score * score) / math.sqrt(2 * math.pi)
        improvement: Reals = gain * ndtr(score) + deviation * density
        return improvement

    def prior_bound(self, which: int) -> Reals:
        """Return mean number `which` less one prior standard deviation, for use before any outcome."""
        deviation = math.sqrt(_PRIOR_VARIANCE) * np.sqrt(np.maximum(1 - self._explained, 0))
        bound: Reals = self._means[which] - deviation
        return bound

    def _posterior(self, which: int) -> tuple[Reals, Reals]:
        """Return the mean and the standard deviation of each config, relative to the best outcome."""
        targets = self._targets()
        told = len(targets)
        mean = self._means[which][[self._evaluated[i] for i in self._used[:told]]]
        right = np.stack([np.ones(told), targets - mean], axis=1)
        shift, weights, variance = _solve(self._factor[:told, :told], right)
        mean = self._means[which] + shift + weights @ self._reduced[:told]
        return mean, np.sqrt(variance * np.maximum(1 - self._explained, 1e-9))

    def _targets(self) -> Reals:
        """Return the outcomes conditioned on, relative to the best of them."""
        return _above_best(np.array([self._outcomes[i] for i in self._used if i < len(self._outcomes)]))

    def _fit(self) -> None:
        """Choose length scales and noise by coordinate-wise ascent of the posterior density on a grid."""
        positions = [self._evaluated[i] for i in self._used]
        points, n = self._coordinates[positions], len(positions)
        rows, columns = np.tril_indices(n, -1)
        apart = (points[rows] - points[columns]) ** 2
        right = np.stack([np.ones(n), self._targets() - self._means[0][positions]], axis=1)
        matrix = np.zeros((n, n), order="F")  # LAPACK reads the lower half alone
        flat = matrix.reshape(-1, order="F")
        below, diagonal = rows + n * columns, np.arange(n) * (n + 1)

        def cost(lengths: Reals, noise: float) -> float:
            """Return the negative logarithm of the posterior density."""
            flat[below] = _matern(apart @ np.exp(-2 * lengths))
            flat[diagonal] = 1 + noise
            factor = _factor(matrix)
            variance = _solve(factor, right)[2]
            prior = np.sum(((lengths - self._centre) / _LENGTH_SPREAD) ** 2)
            return float(0.5 * n * math.log(variance) + np.log(np.diag(factor)).sum() + 0.5 * prior)

        least = cost(self._lengths, self._noise)
        for axis in range(len(self._lengths)):
            for step in (_LENGTH_STEP, -_LENGTH_STEP):
                while True:
                    lengths = self._lengths.copy()
                    lengths[axis] += step
                    found = cost(lengths, self._noise)
                    if found >= least - 1e-6:
                        break
                    self._lengths, least = lengths, found
        self._noise = min(_NOISES, key=lambda noise: round(cost(self._lengths, noise), 6))

    def _condition(self, used: Sequence[int]) -> None:
        """Recompute the rows for the outcomes of these numbers."""
        self._used = list(used)
        self._scaled = self._coordinates / np.exp(self._lengths)
        self._norms = (self._scaled**2).sum(axis=1)
        positions = [self._evaluated[i] for i in used]
        across = self._correlations(positions)
        if used:
            noisy = across[:, positions]
            np.fill_diagonal(noisy, 1 + self._noise)
            self._factor = _factor(noisy)
            self._reduced = _reduce(self._factor, across)
        self._explained = (self._reduced**2).sum(axis=0)

    def _correlations(self, positions: Sequence[int]) -> Reals:
        """Return the correlations of the configs at `positions` with all configs, shape (positions, configs)."""
        chosen = self._scaled[positions]
        return _matern(self._norms[positions][:, None] + self._norms[None] - 2 * chosen @ self._scaled.T)


def _selected(outcomes: Reals) -> list[int]:
    """Return the ascending numbers of the outcomes to condition on."""
    if len(outcomes) <= _MAX_OUTCOMES:
        return list(range(len(outcomes)))
    order = np.argsort(outcomes, kind="stable")
    best, rest = order[: _MAX_OUTCOMES // 2], np.sort(order[_MAX_OUTCOMES // 2 :])
    some = rest[np.linspace(0, len(rest) - 1, _MAX_OUTCOMES - len(best)).astype(np.intp)]
    return sorted(int(i) for i in (*best, *some))


def _above_best(outcomes: Reals) -> Reals:
    """Subtract the best outcome; a failure counts as the worst outcome that worked."""
    works = np.isfinite(outcomes)
    if not works.any():
        return np.zeros(len(outcomes))
    above: Reals = np.where(works, outcomes, outcomes[works].max()) - outcomes[works].min()
    return above


def _matern(squared: Reals) -> Reals:
    """Return Matérn 5/2 correlations for squared distances, in place where possible: a search spends a third here."""
    distance = np.maximum(squared, 0)
    distance *= 5
    np.sqrt(distance, out=distance)
    correlation: Reals = distance * distance
    correlation /= 3
    correlation += 1 + distance
    np.negative(distance, out=distance)
    correlation *= np.exp(distance, out=distance)
    return correlation


def _factor(matrix: Reals) -> Reals:
    """Return the lower Cholesky factor; scipy's wrapper takes longer than LAPACK itself on matrices this small."""
    factor: Reals
    factor, failed = dpotrf(matrix, lower=True)
    if failed:
        raise np.linalg.LinAlgError(f"LAPACK's potrf found the matrix of {len(matrix)} not positive definite")
    return factor


def _reduce(factor: Reals, right: Reals) -> Reals:
    """Multiply the columns of `right` by the inverse of the lower triangular `factor`, of either memory order."""
    fortran = factor.flags.f_contiguous
    reduced: Reals = dtrtrs(factor if fortran else factor.T, right, lower=fortran, trans=not fortran)[0]
    return reduced


def _solve(factor: Reals, right: Reals) -> tuple[float, NDArray[np.float64], float]:
    """Return shift, weights and variance that explain the second column of `right`, up to a multiple of the first."""
    reduced = _reduce(factor, right)
    ones, targets = reduced[:, 0], reduced[:, 1]
    shift = float(ones @ targets / (ones @ ones + _SHIFT_PRECISION))
    weights = targets - shift * ones
    variance = float((weights @ weights + _PRIOR_WEIGHT * _PRIOR_VARIANCE) / (len(targets) + _PRIOR_WEIGHT))
    return shift, weights, variance
