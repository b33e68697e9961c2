"""Extremely randomised trees by scikit-learn (Geurts, Ernst and Wehenkel, Machine Learning 63, 2006)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

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
    forest = _fit(columns.tobytes(), targets.tobytes(), trees, leaf, share, seed)
    rows = np.ascontiguousarray(queries, np.float32)  # the type that trees compare in
    first, *others = (predict(rows) for predict in forest)
    return sum(others, start=first) / trees


@lru_cache(maxsize=4)
def _fit(
    columns: bytes, targets: bytes, trees: int, leaf: int, share: float, seed: int
) -> Sequence[Callable[[NDArray[np.float32]], Reals]]:
    """Fit the trees to arrays in C order, once for all searches of a campaign with the same history."""
    import sklearn  # loads slowly, and many campaigns have no history
    from sklearn.ensemble import ExtraTreesRegressor

    known = np.frombuffer(targets)
    with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):  # a tenth of the time
        model = ExtraTreesRegressor(trees, min_samples_leaf=leaf, max_features=share, random_state=seed % 2**32)
        model.fit(np.frombuffer(columns).reshape(len(known), -1), known)
    return [partial(tree.predict, check_input=False) for tree in model.estimators_]
