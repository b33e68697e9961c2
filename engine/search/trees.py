"""Extremely randomised trees (Geurts, Ernst and Wehenkel, Machine Learning 63, 2006), by scikit-learn."""

from __future__ import annotations

from gemmtune.engine.search.coordinates import Reals

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
    import sklearn  # a second to import, and many campaigns learn nothing
    from sklearn.ensemble import ExtraTreesRegressor

    with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):  # a tenth of the time
        model = ExtraTreesRegressor(trees, min_samples_leaf=leaf, max_features=share, random_state=seed % 2**32)
        found: Reals = model.fit(columns, targets).predict(asked)
    return found
