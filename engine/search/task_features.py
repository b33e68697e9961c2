"""What is known of a task's configs before any is built: the problem, the space's features, the model's estimate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.problem import Layout, Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import Space

__all__ = ["SIZES", "TaskFeatures", "problem_features"]

SIZES = {f"problem {name}": name for name in ("m", "n", "k", "batch")}
"""Names under which a problem's sizes are known, and its fields."""


class TaskFeatures:
    """Describes configs of one task, each once: a campaign's searches and their successors ask for the same ones."""

    def __init__(self, space: Space, task: Task) -> None:
        """`space` is the task's."""
        self._space = space
        self._task = task
        self._names: tuple[str, ...] = ()
        self._known: dict[Config, NDArray[np.float64]] = {}

    def __call__(self, config: Config) -> Mapping[str, float]:
        """The space's features, the logarithm of the model's estimate, the problem's and the device's sizes."""
        [row] = self.matrix([config]).tolist()
        return dict(zip(self._names, row, strict=True))

    def matrix(self, configs: Sequence[Config]) -> NDArray[np.float64]:
        """The same of many, configs × names: together they take a fifth of the time. It is not to be written to."""
        new = [config for config in configs if config not in self._known]
        if new:
            columns = dict(self._space.features_of(self._task, new))
            if self._estimates:
                # What the model has no opinion of is taken for as slow as the slowest it knows.
                columns["estimate"] = np.array([self._estimates.get(config, self._slowest) for config in new])
            columns |= {name: np.full(len(new), value) for name, value in self._constants.items()}
            self._names = tuple(columns)
            rows = np.stack(list(columns.values()), axis=1)
            self._known.update(zip(new, rows, strict=True))
            if len(new) == len(configs):
                return rows
        return np.array([self._known[config] for config in configs]).reshape(len(configs), len(self._names))

    @cached_property
    def _estimates(self) -> Mapping[Config, float]:
        times = self._space.prior(self._task).times_ns
        fastest = min(times.values(), default=1.0)
        return {config: math.log2(time / fastest) for config, time in times.items()}

    @cached_property
    def _slowest(self) -> float:
        return max(self._estimates.values())

    @cached_property
    def _constants(self) -> Mapping[str, float]:
        device = self._task.device
        sizes = {"SMs": math.log2(device.sm_count), "bandwidth": math.log2(device.memory_bandwidth_gb_s)}
        return {**problem_features(self._task.problem), **sizes}


def problem_features(problem: Problem) -> Mapping[str, float]:
    """The problem's sizes in logarithms to base 2, and its types and layouts; the same for each of its configs."""
    return {
        **{name: math.log2(getattr(problem, field)) for name, field in SIZES.items()},
        "bytes of A": float(problem.a_dtype.itemsize),
        "bytes of out": float(problem.out_dtype.itemsize),
        "A transposed": float(problem.a_layout is Layout.T),
        "B transposed": float(problem.b_layout is Layout.T),
    }
