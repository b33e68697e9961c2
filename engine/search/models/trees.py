"""Extremely randomised trees (Geurts, Ernst and Wehenkel, Machine Learning 63, 2006), by scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.search.models.coordinates import Reals

__all__ = ["predicted"]


def predicted(columns: Reals, targets: Reals, asked: Reals, *, trees: int, leaf: int, share: float, seed: int) -> Reals:
    """What so many trees, taught by rows with known targets, say of other rows.

    Args:
        columns: of the rows that are known, rows × columns; finite.
        targets: of them, rows or rows × targets.
        asked: the other rows.
        trees: how many.
        leaf: fewest rows of a leaf.
        share: of the columns, how many a split may choose from.
        seed: of every random choice.
    """
    forest = _grown(
        *(_Table(np.ascontiguousarray(table, np.float64)) for table in (columns, targets)), trees, leaf, share, seed
    )
    rows = np.ascontiguousarray(asked, np.float32)  # what trees take
    first, *others = (tree.predict(rows, check_input=False) for tree in forest)
    return sum(others, start=first) / trees


class _Table:
    """Numbers that are equal if all of them are: the tasks of a campaign are taught by the same past."""

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
        """What it says of each row."""


@lru_cache(maxsize=4)
def _grown(columns: _Table, targets: _Table, trees: int, leaf: int, share: float, seed: int) -> Sequence[_Tree]:
    """The trees, which a search grows in 0.05 s, and the next one of the campaign need not grow again."""
    import sklearn  # a second to import, and many campaigns learn nothing
    from sklearn.ensemble import ExtraTreesRegressor

    with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):  # a tenth of the time
        model = ExtraTreesRegressor(trees, min_samples_leaf=leaf, max_features=share, random_state=seed % 2**32)
        forest: Sequence[_Tree] = model.fit(columns.numbers, targets.numbers).estimators_
    return forest
