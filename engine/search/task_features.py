"""Numbers known of a task's configs before any of them is built."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.search import FeatureFunction
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.space import Space

SIZE_PREFIX = "problem "
"""Beginning of the name of each feature that is a size of the workload."""
SM_COUNT = "SMs"
"""Name of the feature that is the number of streaming multiprocessors, a logarithm to base 2."""


class TaskFeatures:
    """Features of one task's configs: the space's features, the problem and the device.

    Each config is computed once and cached, since the searches of a campaign ask for the same configs again.
    """

    def __init__(self, space: Space, task: Task) -> None:
        self._space = space
        self._task = task
        self._names: tuple[str, ...] = ()
        self._rows: dict[Config, NDArray[np.float64]] = {}

    def __call__(self, config: Config) -> Mapping[str, float]:
        """Return one config's features by name; sizes are logarithms to base 2."""
        [row] = self.matrix([config]).tolist()
        return dict(zip(self._names, row, strict=True))

    def matrix(self, configs: Sequence[Config]) -> NDArray[np.float64]:
        """Return the features of many configs, shape (configs, features). Treat the array as read-only."""
        new = [config for config in configs if config not in self._rows]
        if new:
            columns = dict(self._space.features_of(self._task, new))
            columns |= {name: np.full(len(new), value) for name, value in self._constants.items()}
            self._names = tuple(columns)
            rows = np.stack(list(columns.values()), axis=1)
            self._rows.update(zip(new, rows, strict=True))
            if len(new) == len(configs):
                return rows
        return np.array([self._rows[config] for config in configs]).reshape(len(configs), len(self._names))

    @cached_property
    def _constants(self) -> Mapping[str, float]:
        device = self._task.device
        sizes = {SM_COUNT: math.log2(device.sm_count), "bandwidth": math.log2(device.memory_bandwidth_gb_s)}
        return {**problem_features(self._task.problem), **sizes}


def problem_features(problem: Workload) -> Mapping[str, float]:
    """Return a workload's sizes as logarithms to base 2, and its traits."""
    sizes = {f"{SIZE_PREFIX}{name}": math.log2(size) for name, size in problem.sizes.items()}
    return {**sizes, **problem.traits}


def feature_matrix(features: FeatureFunction, configs: Sequence[Config]) -> NDArray[np.float64]:
    """Return the features of many configs in their own units, shape (configs, features)."""
    if isinstance(features, TaskFeatures):
        return features.matrix(configs)
    rows = [tuple(features(config).values()) for config in configs]
    return np.array(rows, np.float64).reshape(len(configs), -1 if rows and rows[0] else 0)
