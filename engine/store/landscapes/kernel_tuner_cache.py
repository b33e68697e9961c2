"""A cache file of Kernel Tuner as a landscape: one task, every config that was evaluated.

    {"device_name": "NVIDIA A100", "kernel_name": "convolution", "tune_params_keys": ["block_size_x", "tile"], ...,
     "cache": {"16,1": {"block_size_x": 16, "tile": 1, "time": 3.87, "times": [3.97, 3.77],
                        "compile_time": 918.6, "verification_time": 0, "benchmark_time": 126.4, ...},
               "16,2": {"block_size_x": 16, "tile": 2, "time": "RuntimeFailedConfig", ...}}}

Times are milliseconds. The file of a run that goes on, or was broken off, lacks its end: each line is an entry and a
comma. Source: `process_cache`, `correct_open_cache` and `store_cache` in kernel_tuner/util.py, version 1.5.0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from gemmtune.engine.records.errors import LandscapeError
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.store.landscapes.cells import read_status
from gemmtune.engine.store.landscapes.foreign_json import config_of, landscape_of, listing, number, table

__all__ = ["load", "parse"]

_ERRORS = ("InvalidConfig", "CompilationFailedConfig", "RuntimeFailedConfig", "ErrorConfig")
_COSTS = ("compile_time", "verification_time", "benchmark_time", "framework_time", "strategy_time")
_MS_NS = 1e6


def load(file: Path, text: str) -> Mapping[str, object]:
    """The JSON object of a file; one that lacks its end is given it.

    Raises:
        LandscapeError: it is not JSON, or not an object.
    """
    stripped = text.strip()
    try:
        return table(str(file), json.loads(stripped))
    except json.JSONDecodeError as error:
        try:
            return table(str(file), json.loads(stripped.removesuffix(",") + "}}"))
        except json.JSONDecodeError:
            raise LandscapeError(f"{file} is not JSON: {error}") from None


def parse(file: Path, found: Mapping[str, object]) -> Landscape:
    """The landscape of an open cache file; `file` names it and the errors.

    Raises:
        LandscapeError: the object breaks the format.
    """
    names = [str(name) for name in listing(f"{file}, tune_params_keys", found.get("tune_params_keys"))]
    entries = table(f"{file}, cache", found["cache"])
    points = [_point(f"{file}, cache entry {key}", names, table(f"{file}, {key}", e)) for key, e in entries.items()]
    facts = {"device": found.get("device_name"), "kernel": found.get("kernel_name")}
    return landscape_of(file, names, points, {name: str(fact) for name, fact in facts.items() if fact})


def _point(where: str, names: list[str], entry: Mapping[str, object]) -> Point:
    config = config_of(where, {name: entry[name] for name in names if name in entry})
    costs = [number(f"{where}, {name}", entry[name]) for name in _COSTS if name in entry]
    cost_seconds = sum(costs) / 1e3 if costs else None
    # Since 1.0 under a key of its own, before that in the place of the objective.
    failure = next((v for v in entry.values() if isinstance(v, str) and v in _ERRORS), None)
    if failure is not None:
        status, _ = read_status(failure)
        return Point(config, status, None, reason=failure, cost_seconds=cost_seconds)
    time_ns = number(f"{where}, time", entry.get("time"), above=0) * _MS_NS
    launches = listing(f"{where}, times", entry.get("times", []))
    samples_ns = tuple(number(f"{where}, times", launch, above=0) * _MS_NS for launch in launches)
    return Point(config, Status.OK, time_ns, samples_ns, cost_seconds=cost_seconds)
