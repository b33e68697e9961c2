"""Configs as points of a unit cube, so that a model can measure how alike two of them are."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.config import Config
from gemmtune.engine.search.encoding import Encoding, values_by_name

Reals = NDArray[np.float64]
"""Matrix of shape (configs, coordinates), or vector of shape (configs,)."""

_PARAM_WEIGHT = 0.35
"""Weight of a parameter that the features explain, chosen on recorded landscapes; see experiments/search."""
_FEATURE_WEIGHT = 1.5
"""Weight of a feature, chosen on recorded landscapes; see experiments/search."""
_UNEXPLAINED_SHARE = 0.9
"""Share of a parameter's variance that the features leave unexplained, above which the parameter weighs 1."""


def param_coordinates(encoding: Encoding) -> Reals:
    """Return the parameters as coordinates from 0 to 1, shape (configs, coordinates).

    An ordered parameter is one coordinate: the index of its value among the values that occur. Irregular integers
    get a second one, the number of times that two divides the value. An unordered parameter has one per value.
    """
    columns: list[Reals] = []
    for axis, (values, ordered) in enumerate(zip(encoding.values, encoding.ordered, strict=True)):
        levels = encoding.points[:, axis]
        if ordered or len(values) == 2:
            columns.append(levels.astype(np.float64))
            if (twos := _powers_of_two(values)) is not None:
                columns.append(twos[levels])
        else:
            columns.extend((levels == level).astype(np.float64) for level in range(len(values)))
    return scale_to_unit(np.stack(columns, axis=1) if columns else np.empty((len(encoding.points), 0)))


def most_central(coordinates: Reals) -> int:
    """Return the position of the config closest to the mean of all, the first of equals."""
    return int(np.argmin(np.round(((coordinates - coordinates.mean(axis=0)) ** 2).sum(axis=1), 9)))


def param_values(configs: Sequence[Config]) -> Reals:
    """Return the parameter values, shape (configs, parameters); a text is its index in alphabetical order."""
    columns = []
    for values in values_by_name(configs).values():
        if isinstance(values[0], str):
            columns.append(np.unique(values, return_inverse=True)[1].astype(np.float64))
        else:
            columns.append(np.array(values, np.float64))
    return np.stack(columns, axis=1) if columns else np.empty((len(configs), 0))


def scale_to_unit(matrix: Reals) -> Reals:
    """Scale each column to the range from 0 to 1, and drop the columns that do not vary."""
    if not matrix.size:
        return np.empty((len(matrix), 0))
    low, high = matrix.min(axis=0), matrix.max(axis=0)
    varies = high > low
    scaled: Reals = (matrix[:, varies] - low[varies]) / (high - low)[varies]
    return scaled


def weigh_coordinates(params: Reals, features: Reals) -> Reals:
    """Weigh parameters and features, and return them side by side, shape (configs, coordinates).

    Configs with equal features behave alike, whatever parameters lead there. So a parameter weighs little, unless a
    linear fit of the features leaves most of its variance unexplained.
    """
    if not features.size:
        return params
    explanation = np.column_stack([np.ones(len(features)), features])
    rest = params - explanation @ np.linalg.lstsq(explanation, params)[0]
    unexplained = rest.var(axis=0) > _UNEXPLAINED_SHARE * params.var(axis=0)
    return np.hstack([np.where(unexplained, 1.0, _PARAM_WEIGHT) * params, _FEATURE_WEIGHT * features])


def _powers_of_two(values: Sequence[object]) -> Reals | None:
    """Return how often two divides each value; None for powers of two and for 1, 2, 3, ..."""
    whole = [v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0]
    if len(values) < 4 or len(whole) < len(values):
        return None
    twos = np.array([(v & -v).bit_length() for v in whole], np.float64)
    rises = np.all(np.diff(twos) > 0)  # powers of two
    counts = values[-1] == len(values)  # 1, 2, 3, ...
    return None if rises or counts else twos
