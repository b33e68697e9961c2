"""Configs as points of a unit cube, so that a surrogate can measure how alike two of them are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.config import Config, Param, Value
from gemmtune.engine.records.search import FeatureFunction
from gemmtune.engine.search.task_features import TaskFeatures

__all__ = ["Reals", "feature_matrix", "numbers", "of_params", "unit", "values_by_name"]

Reals = NDArray[np.float64]
"""A matrix of configs × coordinates, or one number a config."""


def of_params(params: Sequence[Param], configs: Sequence[Config]) -> Reals:
    """The parameters as coordinates from 0 to 1, configs × coordinates; what never varies has none.

    An ordered parameter is its level's place among the values that occur, and where its values are integers beside the
    powers of two, how often two divides them: hardware likes 96 better than 97. Not so where they count up one by one,
    as stages do. Each value of an unordered one is a coordinate of its own.
    """
    columns: list[Reals] = []
    values = values_by_name(configs)
    for param in params:
        index = {value: i for i, value in enumerate(param.values)}
        levels = np.fromiter(map(index.__getitem__, values.get(param.name, ())), np.intp, len(configs))
        used, places = np.unique(levels, return_inverse=True)
        if param.ordered or len(used) == 2:
            columns.append(places.astype(np.float64))
            columns.extend(_twos([param.values[i] for i in used], places))
        else:
            columns.extend((places == i).astype(np.float64) for i in range(len(used)))
    return unit(np.stack(columns, axis=1) if columns else np.empty((len(configs), 0)))


def values_by_name(configs: Sequence[Config]) -> Mapping[str, Sequence[Value]]:
    """What each parameter of the space is in these configs, in their order."""
    names = list(configs[0]) if configs else []
    flat = list(chain.from_iterable(config.values() for config in configs))
    return {name: flat[i :: len(names)] for i, name in enumerate(names)}


def numbers(configs: Sequence[Config]) -> Reals:
    """The parameters' values, configs × parameters; texts by their place in the alphabet."""
    columns = []
    for values in values_by_name(configs).values():
        if isinstance(values[0], str):
            columns.append(np.unique(values, return_inverse=True)[1].astype(np.float64))
        else:
            columns.append(np.array(values, np.float64))
    return np.stack(columns, axis=1) if columns else np.empty((len(configs), 0))


def feature_matrix(features: FeatureFunction, configs: Sequence[Config]) -> Reals:
    """What is known of the configs, configs × names, in its own units."""
    if isinstance(features, TaskFeatures):
        return features.matrix(configs)
    rows = [tuple(features(config).values()) for config in configs]
    return np.array(rows, np.float64).reshape(len(configs), -1 if rows and rows[0] else 0)


def unit(matrix: Reals) -> Reals:
    """Each column from 0 to 1; columns that do not vary are left out."""
    if not matrix.size:
        return np.empty((len(matrix), 0))
    low, high = matrix.min(axis=0), matrix.max(axis=0)
    varies = high > low
    scaled: Reals = (matrix[:, varies] - low[varies]) / (high - low)[varies]
    return scaled


def _twos(values: Sequence[object], places: NDArray[np.intp]) -> list[Reals]:
    if len(values) < 4 or not all(isinstance(v, int) and not isinstance(v, bool) and v > 0 for v in values):
        return []
    twos = np.array([(v & -v).bit_length() for v in values if isinstance(v, int)], np.float64)
    rises = np.all(np.diff(twos) > 0)  # powers of two: the level says it already
    counts = values[-1] == len(values)  # 1, 2, 3, ...
    return [] if rises or counts else [twos[places]]
