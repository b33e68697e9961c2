"""Gaussian process over a finite set of configs."""

import math
from collections.abc import Sequence

import numpy as np

from gemmtune.engine.search.models import kernel
from gemmtune.engine.search.models.coordinates import Reals
from gemmtune.engine.search.models.kernel import Kernel


class GaussianProcess:
    """Gaussian process with one kernel and one posterior for each of several prior means.

    The signal's variance and a constant added to the mean are set to their estimates. Outcomes are logarithms of
    times; lower is better.

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
        self._kernel = Kernel.prior(coordinates.shape[1])
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
        pivot = math.sqrt(max(1 + self._kernel.noise - float(column @ column), 1e-9))
        row = (self._correlations([position])[0] - column @ self._reduced[:n]) / pivot
        self._reduced[n] = row
        self._explained += row * row
        self._factor[n, :n], self._factor[n, n] = column, pivot
        self._used.append(len(self._evaluated) - 1)

    def tell(self, outcomes: Sequence[float]) -> None:
        """Add the outcomes of the configs added since the last call, in their order; NaN stands for a failure."""
        self._outcomes.extend(outcomes)
        n = len(self._outcomes)
        if kernel.is_fit_due(n, self._fitted):
            self._used = kernel.select_outcomes(self._outcomes)
            positions = [self._evaluated[i] for i in self._used]
            targets = self._targets() - self._means[0][positions]
            self._kernel = self._kernel.fit(self._coordinates[positions], targets)
            self._condition(self._used)
            self._fitted = n

    def improvement(self, which: int) -> Reals:
        """Return each config's expected improvement over the best outcome under mean number `which`."""
        return kernel.expected_improvement(*self._posterior(which))

    def prior_bound(self, which: int) -> Reals:
        """Return mean number `which` less one prior standard deviation, for use before any outcome."""
        deviation = math.sqrt(kernel.PRIOR_VARIANCE) * np.sqrt(np.maximum(1 - self._explained, 0))
        bound: Reals = self._means[which] - deviation
        return bound

    def _posterior(self, which: int) -> tuple[Reals, Reals]:
        """Return the mean and the standard deviation of each config, relative to the best outcome."""
        targets = self._targets()
        told = len(targets)
        mean = self._means[which][[self._evaluated[i] for i in self._used[:told]]]
        right = np.stack([np.ones(told), targets - mean], axis=1)
        shift, weights, variance = kernel.solve(self._factor[:told, :told], right)
        mean = self._means[which] + shift + weights @ self._reduced[:told]
        return mean, np.sqrt(variance * np.maximum(1 - self._explained, 1e-9))

    def _targets(self) -> Reals:
        """Return the outcomes conditioned on, relative to the best of them."""
        return kernel.above_best([self._outcomes[i] for i in self._used if i < len(self._outcomes)])

    def _condition(self, used: Sequence[int]) -> None:
        """Recompute the rows for the outcomes of these numbers."""
        self._used = list(used)
        self._scaled = self._kernel.scale(self._coordinates)
        self._norms = (self._scaled**2).sum(axis=1)
        positions = [self._evaluated[i] for i in used]
        across = self._correlations(positions)
        if used:
            noisy = across[:, positions]
            np.fill_diagonal(noisy, 1 + self._kernel.noise)
            self._factor = kernel.factorise(noisy)
            self._reduced = kernel.reduce(self._factor, across)
        self._explained = (self._reduced**2).sum(axis=0)

    def _correlations(self, positions: Sequence[int]) -> Reals:
        """Return the correlations of the configs at `positions` with all configs, shape (positions, configs)."""
        chosen = self._scaled[positions]
        return kernel.matern(self._norms[positions][:, None] + self._norms[None] - 2 * chosen @ self._scaled.T)
