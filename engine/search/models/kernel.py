"""Kernel of a Gaussian process with its linear algebra; outcomes are logarithms of times, lower is better."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gemmtune.engine.search.models.coordinates import Reals

# Chosen on recorded landscapes, see experiments/search.
_LENGTH_SCALE = 0.45
"""Prior median of a length scale, per square root of the number of coordinates."""
LENGTH_SPREAD = 0.4
"""Prior standard deviation of the logarithm of a length scale."""
_LENGTH_STEP = math.log(2) / 2
"""Step of the logarithm of a length scale on the grid of candidates, √2; every machine picks the same grid point."""
NOISES = (1e-5, 1e-3, 1e-2, 1e-1)
"""Candidate noise variances, in units of the signal's variance."""
_REFIT_GROWTH = 1.5
"""Factor by which the number of outcomes grows between two fits of the kernel."""
FIRST_FIT = 4
"""Number of outcomes at which a kernel is first fitted."""
_REFIT_INTERVAL = 16
"""Largest number of new outcomes between two fits of the kernel."""
_MAX_OUTCOMES = 96
"""Largest number of outcomes a process is conditioned on: the best half, and others spread evenly over the rest."""
PRIOR_VARIANCE = 0.01
"""Prior variance of the signal, a standard deviation of 10 % of a time."""
PRIOR_WEIGHT = 0.2
"""Weight of the prior variance, in outcomes."""
_SHIFT_PRECISION = 1e-2
"""Inverse of the prior variance of the constant added to each mean."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """Matérn 5/2 kernel with one length scale per coordinate."""

    lengths: Reals
    """Logarithm of the length scale per coordinate."""
    noise: float = NOISES[1]
    """Noise variance, in units of the signal's variance."""

    @classmethod
    def prior(cls, coordinates: int) -> "Kernel":
        """Return the kernel before any outcome is known."""
        return cls(np.full(coordinates, central_length(coordinates)))

    def scale(self, coordinates: Reals) -> Reals:
        """Divide coordinates by their length scales."""
        scaled: Reals = coordinates / np.exp(self.lengths)
        return scaled

    def fit(self, points: Reals, targets: Reals) -> "Kernel":
        """Choose length scales and noise by coordinate-wise ascent of the posterior density on a grid.

        Args:
            points: coordinates of the evaluated configs, shape (configs, coordinates).
            targets: outcomes less their prior mean, shape (configs,).
        """
        n = len(points)
        centre = central_length(points.shape[1])
        rows, columns = np.tril_indices(n, -1)
        apart = (points[rows] - points[columns]) ** 2
        right = np.stack([np.ones(n), targets], axis=1)
        matrix = np.zeros((n, n), order="F")  # LAPACK reads the lower half alone
        flat = matrix.reshape(-1, order="F")
        below, diagonal = rows + n * columns, np.arange(n) * (n + 1)

        def cost(lengths: Reals, noise: float) -> float:
            """Return the negative logarithm of the posterior density."""
            flat[below] = matern(apart @ np.exp(-2 * lengths))
            flat[diagonal] = 1 + noise
            factor = factorise(matrix)
            variance = solve(factor, right)[2]
            prior = np.sum(((lengths - centre) / LENGTH_SPREAD) ** 2)
            return float(0.5 * n * math.log(variance) + np.log(np.diag(factor)).sum() + 0.5 * prior)

        chosen = ascend(self.lengths, lambda lengths: cost(lengths, self.noise))
        noise = min(NOISES, key=lambda noise: round(cost(chosen, noise), 6))
        return replace(self, lengths=chosen, noise=noise)


def ascend(lengths: Reals, cost: Callable[[Reals], float]) -> Reals:
    """Return the lengths of less cost, found by steps along one axis after the other."""
    chosen, least = lengths, cost(lengths)
    for axis in range(len(chosen)):
        for step in (_LENGTH_STEP, -_LENGTH_STEP):
            while True:
                tried = chosen.copy()
                tried[axis] += step
                found = cost(tried)
                if found >= least - 1e-6:
                    break
                chosen, least = tried, found
    return chosen


def is_fit_due(told: int, fitted: int) -> bool:
    """Return whether enough outcomes are new since the last fit of a kernel."""
    return told >= min(max(_REFIT_GROWTH * fitted, FIRST_FIT), fitted + _REFIT_INTERVAL)


def select_outcomes(outcomes: Sequence[float]) -> list[int]:
    """Return the ascending numbers of the outcomes to condition on; NaN stands for a failure."""
    if len(outcomes) <= _MAX_OUTCOMES:
        return list(range(len(outcomes)))
    order = np.argsort(above_best(outcomes), kind="stable")
    best, rest = order[: _MAX_OUTCOMES // 2], np.sort(order[_MAX_OUTCOMES // 2 :])
    some = rest[np.linspace(0, len(rest) - 1, _MAX_OUTCOMES - len(best)).astype(np.intp)]
    return sorted(int(i) for i in (*best, *some))


def above_best(outcomes: Sequence[float]) -> Reals:
    """Subtract the best outcome; a failure counts as the worst outcome that worked."""
    values = np.array(outcomes, np.float64)
    works = np.isfinite(values)
    if not works.any():
        return np.zeros(len(values))
    above: Reals = np.where(works, values, values[works].max()) - values[works].min()
    return above


def expected_improvement(mean: Reals, deviation: Reals) -> Reals:
    """Return each config's expected improvement over the best outcome, from which `mean` counts.

    Source: Jones, Schonlau and Welch, Journal of Global Optimization 13, 1998.
    """
    from scipy.special import ndtr  # scipy takes a quarter of a second to import; a repeated campaign asks nothing

    score = -mean / deviation
    density = np.exp(-0.5 * score * score) / math.sqrt(2 * math.pi)
    improvement: Reals = deviation * density - mean * ndtr(score)
    return improvement


def matern(squared: Reals) -> Reals:
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


def factorise(matrix: Reals) -> Reals:
    """Return the lower Cholesky factor; scipy's wrapper takes longer than LAPACK itself on matrices this small."""
    from scipy.linalg.lapack import dpotrf

    factor: Reals
    factor, failed = dpotrf(matrix, lower=True)
    if failed:
        raise np.linalg.LinAlgError(f"LAPACK's potrf found the matrix of {len(matrix)} not positive definite")
    return factor


def reduce(factor: Reals, right: Reals) -> Reals:
    """Multiply the columns of `right` by the inverse of the lower triangular `factor`, of either memory order."""
    from scipy.linalg.lapack import dtrtrs

    fortran = factor.flags.f_contiguous
    reduced: Reals = dtrtrs(factor if fortran else factor.T, right, lower=fortran, trans=not fortran)[0]
    return reduced


def solve(factor: Reals, right: Reals) -> tuple[float, Reals, float]:
    """Return shift, weights and variance that explain the second column of `right`, up to a multiple of the first."""
    reduced = reduce(factor, right)
    ones, targets = reduced[:, 0], reduced[:, 1]
    shift = float(ones @ targets / (ones @ ones + _SHIFT_PRECISION))
    weights = targets - shift * ones
    variance = float((weights @ weights + PRIOR_WEIGHT * PRIOR_VARIANCE) / (len(targets) + PRIOR_WEIGHT))
    return shift, weights, variance


def central_length(coordinates: int) -> float:
    """Return the prior mean of the logarithm of a length scale."""
    return math.log(_LENGTH_SCALE * math.sqrt(max(coordinates, 1)))
