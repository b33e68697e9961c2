"""Kernel Tuner's strategies on a landscape, by its own simulation mode and defaults.

The module needs kernel_tuner 1.5.0, which is no dependency of gemmtune.
"""

from __future__ import annotations

import json
import random
import tempfile
import warnings
from collections.abc import Callable, Container, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import kernel_tuner
import numpy as np

from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status, Trial

_ERROR = {Status.BUILD_FAILED: "CompilationFailedConfig"}


class KernelTunerArm:
    """Strategies of Kernel Tuner on one landscape, written once as a cache file."""

    def __init__(self, landscape: Landscape) -> None:
        self._landscape = landscape
        self._names = [param.name for param in landscape.params]
        self._values = {param.name: list(param.values) for param in landscape.params}
        points = [point for point in landscape.points.values() if point.status is not Status.INVALID]
        self._known = {tuple(point.config[name] for name in self._names): point for point in points}
        self._folder = tempfile.TemporaryDirectory()
        self._cache = Path(self._folder.name) / "cache.json"
        self._cache.write_text(json.dumps(self._cache_file()))

    def search(self, strategy: str, budget: int, seed: int) -> tuple[Trial, ...]:
        """Return the evaluated configs as trials, each once and in order; a repeated config costs nothing."""
        random.seed(seed)
        np.random.seed(seed)  # Kernel Tuner draws from both
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            results, _ = kernel_tuner.tune_kernel(
                "kernel",
                "",
                1,
                [],
                self._values,
                restrictions=membership(self._known, self._names),
                strategy=strategy,
                strategy_options={"max_fevals": budget},
                simulation_mode=True,
                cache=str(self._cache),
                quiet=True,
            )
        asked = dict.fromkeys(tuple(result[name] for name in self._names) for result in results)
        points = [self._known[values] for values in asked]
        return tuple(Trial(point.config, point.status, point.time_ns) for point in points)

    def _cache_file(self) -> dict[str, object]:
        return {
            "device_name": "recorded",
            "kernel_name": "kernel",
            "problem_size": 1,
            "tune_params_keys": self._names,
            "tune_params": self._values,
            "objective": "time",
            "cache": {",".join(map(str, key)): _entry(self._names, key, point) for key, point in self._known.items()},
        }


def membership(known: Container[tuple[object, ...]], names: Sequence[str]) -> Callable[[dict[str, object]], bool]:
    """Return a test for membership; Kernel Tuner copies it deeply, so it is a plain function and not a method."""

    def feasible(config: dict[str, object]) -> bool:
        return tuple(config[name] for name in names) in known

    return feasible


def _entry(names: Sequence[str], key: Sequence[object], point: Point) -> dict[str, object]:
    cost = {"compile_time": (point.cost_seconds or 0) * 1e3, "verification_time": 0, "benchmark_time": 0}
    time = point.time_ns / 1e6 if point.time_ns else _ERROR.get(point.status, "RuntimeFailedConfig")
    return {**dict(zip(names, key, strict=True)), "time": time, **cost}
