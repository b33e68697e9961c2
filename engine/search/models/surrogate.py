"""Gaussian process that predicts only the configs it is asked about, so that the space may be of any size."""

from collections.abc import Sequence

import numpy as np

from gemmtune.engine.search.encoding import Positions
from gemmtune.engine.search.models import kernel
from gemmtune.engine.search.models.coordinates import Reals
from gemmtune.engine.search.models.kernel import Kernel

_REFIT_GROWTH = 1.2
"""Factor by which the number of outcomes grows between two fits of the kernel."""


class Surrogate:
    """Gaussian process of outcomes, which are logarithms of times, over the parameters of configs.

    A config without an outcome yet reduces the variance of its neighbours, so that a batch spreads.
    """

    def __init__(self, coordinates: Reals) -> None:
        """Start without outcomes; `coordinates` of all configs are from 0 to 1, shape (configs, coordinates)."""
        self.coordinates = coordinates
        """Coordinates of all configs; further rows may be added behind them."""
        self._kernel = Kernel.prior(coordinates.shape[1])
        self._evaluated: list[int] = []
        self._outcomes: list[float] = []
        self._used: list[int] = []
        self._fitted = 0

    def tell(self, positions: Sequence[int], outcomes: Sequence[float]) -> None:
        """Add the outcomes of the configs at `positions`; NaN stands for a failure."""
        self._evaluated.extend(positions)
        self._outcomes.extend(outcomes)
        self._used = kernel.select_outcomes(self._outcomes)
        if len(self._outcomes) >= max(_REFIT_GROWTH * self._fitted, kernel.FIRST_FIT):
            points = self.coordinates[[self._evaluated[i] for i in self._used]]
            self._kernel = self._kernel.fit(points, self._targets())
            self._fitted = len(self._outcomes)

    def improvement(self, positions: Positions, pending: Sequence[int]) -> Reals:
        """Return the expected improvement of the configs at `positions` over the best outcome, shape (positions,).

        Args:
            positions: configs to predict.
            pending: configs that are evaluated now.
        """
        told = len(self._used)
        evaluated = self._kernel.scale(self.coordinates[[*(self._evaluated[i] for i in self._used), *pending]])
        chosen = self._kernel.scale(self.coordinates[positions])
        noisy = kernel.matern(_squared(evaluated, evaluated))
        np.fill_diagonal(noisy, 1 + self._kernel.noise)
        factor = kernel.factorise(noisy)
        reduced = kernel.reduce(factor, kernel.matern(_squared(evaluated, chosen)))
        right = np.stack([np.ones(told), self._targets()], axis=1)
        shift, weights, variance = kernel.solve(np.asfortranarray(factor[:told, :told]), right)
        deviation = np.sqrt(variance * np.maximum(1 - (reduced**2).sum(axis=0), 1e-9))
        return kernel.expected_improvement(shift + weights @ reduced[:told], deviation)

    def _targets(self) -> Reals:
        """Return the outcomes conditioned on, relative to the best of them."""
        return kernel.above_best([self._outcomes[i] for i in self._used])


def _squared(some: Reals, others: Reals) -> Reals:
    """Return the squared distances, shape (some, others)."""
    squared: Reals = (some**2).sum(axis=1)[:, None] + (others**2).sum(axis=1)[None] - 2 * some @ others.T
    return squared
