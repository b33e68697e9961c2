"""A Gaussian process over a finite set of configs: what to expect of each, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtrs
from scipy.special import ndtr

from gemmtune.engine.search.models.coordinates import Reals

__all__ = ["Surrogate"]

# Chosen by experiments/search/choose.py.
_LENGTH = 0.45
"""Length scale of a coordinate before anything is known, for each square root of the number of coordinates."""
_SPREAD = 0.4
"""Standard deviation of the logarithm of a length scale around that."""
_STEP = math.log(2) / 2
"""Length scales are looked for in steps of √2. A finite grid is chosen from alike on every machine, where an optimiser
would carry the last bits of a sum into the proposals."""
_NOISES = (1e-5, 1e-3, 1e-2, 1e-1)
"""Variances of the noise, in units of the signal's, to choose from."""
_GROWTH = 1.5
"""The length scales are looked for again when there are so many times more outcomes."""
_MEMORY = 96
"""Outcomes the process is conditioned on at most: the better half of all, and as many evenly out of the rest."""
_RENEWAL = 16
"""Once there are more, they are picked again after so many."""
_PRIOR_VARIANCE = 0.01
"""Signal variance before anything is known: 10 % of a time."""
_PRIOR_WEIGHT = 0.2
"""Outcomes that this is worth."""
_SLACK = 1e-2
"""Inverse of the prior variance of the constant that each mean is shifted by."""


class Surrogate:
    """One kernel, and one posterior for each of several means.

    A mean is what is expected of each config before this search: a constant, or what other tasks taught. Matérn 5/2
    with a length scale a coordinate; its variance and the mean's shift are set to their estimates.

    The rows of `_reduced` are L⁻¹ K(evaluated, all): they depend on where was evaluated, not on what came out, so a
    config in flight already narrows what is unsure (Rasmussen & Williams 2006, algorithm 2.1, one row at a time).
    """

    def __init__(self, coordinates: Reals, means: Sequence[Reals]) -> None:
        """Know nothing yet.

        Args:
            coordinates: configs × coordinates, each from 0 to 1.
            means: what is expected of each config, in the unit of the outcomes and up to a shift; the first one
                chooses the kernel.
        """
        self._coordinates = coordinates
        self._means = tuple(means)
        size = coordinates.shape[1]
        self._centre = math.log(_LENGTH * math.sqrt(max(size, 1)))
        self._lengths: Reals = np.full(size, self._centre)
        self._noise = _NOISES[1]
        self._evaluated: list[int] = []
        self._outcomes: list[float] = []
        self._fitted = 0
        self._used: list[int] = []
        self._reduced: Reals = np.empty((0, len(coordinates)))
        self._factor: Reals = np.empty((0, 0))
        self._explained: Reals = np.zeros(len(coordinates))
        self._condition([])

    @property
    def told(self) -> int:
        """Outcomes told so far."""
        return len(self._outcomes)

    def add(self, position: int) -> None:
        """A config is being evaluated; its outcome follows in `tell`."""
        self._evaluated.append(position)
        n = len(self._used)
        if n == len(self._reduced):
            self._reduced = np.vstack([self._reduced, np.empty((max(n, 16), len(self._coordinates)))])
            factor = np.zeros((len(self._reduced), len(self._reduced)))
            factor[:n, :n] = self._factor[:n, :n]
            self._factor = factor
        known = self._reduced[:n, position].copy()
        pivot = math.sqrt(max(1 + self._noise - float(known @ known), 1e-9))
        row = (self._correlations([position])[0] - known @ self._reduced[:n]) / pivot
        self._reduced[n] = row
        self._explained += row * row
        self._factor[n, :n], self._factor[n, n] = known, pivot
        self._used.append(len(self._evaluated) - 1)

    def tell(self, outcomes: Sequence[float]) -> None:
        """The outcomes of the configs added and not told yet, in their order, to be low; NaN for a failure."""
        self._outcomes.extend(outcomes)
        n = len(self._outcomes)
        if n >= min(max(_GROWTH * self._fitted, 4), self._fitted + _RENEWAL):
            self._renew()

    def improvement(self, which: int) -> Reals:
        """Expected improvement of each config over the best outcome, by the mean of that number."""
        mean, deviation = self._posterior(which)
        gain = -mean  # the best outcome is 0
        score = gain / deviation
        density = np.exp(-0.5 * score * score) / math.sqrt(2 * math.pi)
        improvement: Reals = gain * ndtr(score) + deviation * density
        return improvement

    def bound(self, which: int) -> Reals:
        """One standard deviation below what is expected of each config; known before any outcome."""
        if not self._outcomes:
            bound: Reals = self._means[which] - math.sqrt(_PRIOR_VARIANCE) * np.sqrt(np.maximum(1 - self._explained, 0))
            return bound
        mean, deviation = self._posterior(which)
        return mean - deviation

    def _posterior(self, which: int) -> tuple[Reals, Reals]:
        told = len(self._targets())
        shift, weights, variance = self._weights(which)
        mean = self._means[which] + shift + weights @ self._reduced[:told]
        return mean, np.sqrt(variance * np.maximum(1 - self._explained, 1e-9))

    def _weights(self, which: int) -> tuple[float, Reals, float]:
        """Shift of the mean, weights of the reduced rows, variance of the signal."""
        targets = self._targets()
        told = len(targets)
        mean = self._means[which][[self._evaluated[i] for i in self._used[:told]]]
        right = np.stack([np.ones(told), targets - mean], axis=1)
        return _solve(self._factor[:told, :told], right)

    def _targets(self) -> Reals:
        """The outcomes conditioned on, above the best of them; a failure is as bad as the worst."""
        return _above_best(np.array([self._outcomes[i] for i in self._used if i < len(self._outcomes)]))

    def _renew(self) -> None:
        """Choose the outcomes to keep, then the kernel."""
        self._used = _memorable(_above_best(np.array(self._outcomes)))
        self._fit()
        self._condition(self._used)
        self._fitted = len(self._outcomes)

    def _fit(self) -> None:
        """Choose length scales and noise: coordinate-wise ascent of the posterior density on a grid."""
        positions = [self._evaluated[i] for i in self._used]
        points, n = self._coordinates[positions], len(positions)
        rows, columns = np.tril_indices(n, -1)
        apart = (points[rows] - points[columns]) ** 2
        right = np.stack([np.ones(n), self._targets() - self._means[0][positions]], axis=1)
        matrix = np.zeros((n, n), order="F")  # LAPACK reads the lower half alone
        flat = matrix.reshape(-1, order="F")
        below, diagonal = rows + n * columns, np.arange(n) * (n + 1)

        def correlate(lengths: Reals) -> None:
            flat[below] = _matern(apart @ np.exp(-2 * lengths))

        def unlikely(lengths: Reals, noise: float) -> float:
            """Minus the logarithm of the posterior density, of the lengths that are correlated."""
            flat[diagonal] = 1 + noise
            factor = _factor(matrix)
            variance = _solve(factor, right)[2]
            prior = np.sum(((lengths - self._centre) / _SPREAD) ** 2)
            return float(0.5 * n * math.log(variance) + np.log(np.diag(factor)).sum() + 0.5 * prior)

        def cost(lengths: Reals, noise: float) -> float:
            correlate(lengths)
            return unlikely(lengths, noise)

        least = cost(self._lengths, self._noise)
        for axis in range(len(self._lengths)):
            for step in (_STEP, -_STEP):
                while True:
                    lengths = self._lengths.copy()
                    lengths[axis] += step
                    found = cost(lengths, self._noise)
                    if found >= least - 1e-6:
                        break
                    self._lengths, least = lengths, found
        correlate(self._lengths)
        self._noise = min(_NOISES, key=lambda noise: round(unlikely(self._lengths, noise), 6))

    def _condition(self, used: Sequence[int]) -> None:
        """Build the rows anew, for the outcomes of these numbers."""
        self._used = list(used)
        self._scaled = self._coordinates / np.exp(self._lengths)
        self._norms = (self._scaled**2).sum(axis=1)
        positions = [self._evaluated[i] for i in used]
        across = self._correlations(positions)
        if used:
            self._factor = _factor(_with_noise(across[:, positions], self._noise))
            self._reduced = _reduce(self._factor, across)
        self._explained = (self._reduced**2).sum(axis=0)

    def _correlations(self, positions: Sequence[int]) -> Reals:
        """Of these configs with all."""
        chosen = self._scaled[positions]
        return _matern(self._norms[positions][:, None] + self._norms[None] - 2 * chosen @ self._scaled.T)


def _memorable(outcomes: Reals) -> list[int]:
    """Numbers of the outcomes to keep, ascending."""
    if len(outcomes) <= _MEMORY:
        return list(range(len(outcomes)))
    order = np.argsort(outcomes, kind="stable")
    best, rest = order[: _MEMORY // 2], np.sort(order[_MEMORY // 2 :])
    some = rest[np.linspace(0, len(rest) - 1, _MEMORY - len(best)).astype(np.intp)]
    return sorted(int(i) for i in (*best, *some))


def _above_best(outcomes: Reals) -> Reals:
    works = np.isfinite(outcomes)
    if not works.any():
        return np.zeros(len(outcomes))
    above: Reals = np.where(works, outcomes, outcomes[works].max()) - outcomes[works].min()
    return above


def _matern(squared: Reals) -> Reals:
    """In place but for three arrays: a search spends a third of its time here, much of it on memory."""
    distance = np.maximum(squared, 0)
    distance *= 5
    np.sqrt(distance, out=distance)
    correlation: Reals = distance * distance
    correlation /= 3
    correlation += 1 + distance
    np.negative(distance, out=distance)
    correlation *= np.exp(distance, out=distance)
    return correlation


def _with_noise(correlations: Reals, noise: float) -> Reals:
    noisy = correlations.copy()
    np.fill_diagonal(noisy, 1 + noise)
    return noisy


def _factor(matrix: Reals) -> Reals:
    """The lower L of L Lᵀ = matrix. LAPACK's own, for matrices so small that scipy's way to it takes longer."""
    factor: Reals
    factor, failed = dpotrf(matrix, lower=True)
    if failed:
        raise np.linalg.LinAlgError(f"LAPACK's potrf found the matrix of {len(matrix)} not positive definite")
    return factor


def _reduce(factor: Reals, right: Reals) -> Reals:
    """L⁻¹ times the columns of `right`."""
    if factor.flags.f_contiguous:
        reduced: Reals = dtrtrs(factor, right, lower=True)[0]
    else:
        reduced = dtrtrs(factor.T, right, lower=False, trans=True)[0]
    return reduced


def _solve(factor: Reals, right: Reals) -> tuple[float, NDArray[np.float64], float]:
    """Shift, weights and variance that explain the second column of `right`, up to a multiple of the first."""
    reduced = _reduce(factor, right)
    ones, targets = reduced[:, 0], reduced[:, 1]
    shift = float(ones @ targets / (ones @ ones + _SLACK))
    weights = targets - shift * ones
    variance = float((weights @ weights + _PRIOR_WEIGHT * _PRIOR_VARIANCE) / (len(targets) + _PRIOR_WEIGHT))
    return shift, weights, variance
