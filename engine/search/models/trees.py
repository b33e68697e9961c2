"""Extremely randomised trees by scikit-learn (Geurts, Ernst and Wehenkel, Machine Learning 63, 2006)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.search.models.coordinates import Reals

__all__ = ["predict_with_trees"]


def predict_with_trees(
    columns: Reals, targets: Reals, queries: Reals, *, trees: int, leaf: int, share: float, seed: int
) -> Reals:
    """Fit trees to rows with known targets, and return their mean prediction for other rows, shape (queries,).

    Args:
        columns: finite training inputs, shape (rows, columns).
        targets: training targets, shape (rows,).
        queries: inputs to predict for, shape (queries, columns).
        trees: number of trees.
        leaf: smallest number of rows in a leaf.
        share: share of the columns that each split chooses from.
        seed: seed of every random choice.
    """
    tables = (_Table(np.ascontiguousarray(table, np.float64)) for table in (columns, targets))
    forest = _fit(*tables, trees, leaf, share, seed)
    rows = np.ascontiguousarray(queries, np.float32)  # the type that trees compare in
    first, *others = (tree.predict(rows, check_input=False) for tree in forest)
    return sum(others, start=first) / trees


class _Table:
    """Hashable matrix, so that the searches of a campaign share the trees fitted to the same history."""

    def __init__(self, numbers: Reals) -> None:
        self.numbers = numbers
        self._key = numbers.shape, numbers.tobytes()
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Table) and self._key == other._key


class _Tree(Protocol):
    def predict(self, rows: NDArray[np.float32], *, check_input: bool) -> Reals:
        """Return the prediction for each row."""


@lru_cache(maxsize=4)
def _fit(columns: _Table, targets: _Table, trees: int, leaf: int, share: float, seed: int) -> Sequence[_Tree]:
    """Fit the trees, once for all searches with the same history."""
    import sklearn  # loads slowly, and many campaigns have no history
    from sklearn.ensemble import ExtraTreesRegressor

    with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):  # a tenth of the time
        model = ExtraTreesRegressor(trees, min_samples_leaf=leaf, max_features=share, random_state=seed % 2**32)
        forest: Sequence[_Tree] = model.fit(columns.numbers, targets.numbers).estimators_
    return forest
