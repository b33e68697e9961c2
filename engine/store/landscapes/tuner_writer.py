"""Write landscapes for other tools: as T4 results, or as a cache that Kernel Tuner's simulation mode replays."""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from gemmtune.engine.records.errors import LandscapeError
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.seams.kinds import fields_of
from gemmtune.engine.store.files import write_whole

_INVALIDITY = {
    Status.OK: "correct",
    Status.INVALID: "constraints",
    Status.BUILD_FAILED: "compile",
    Status.RUN_FAILED: "runtime",
    Status.WRONG_RESULT: "correctness",
    Status.TIMED_OUT: "timeout",
}
_CACHE_ERRORS = {Status.INVALID: "InvalidConfig", Status.BUILD_FAILED: "CompilationFailedConfig"}


def write_for_tuner(path: Path, landscape: Landscape, form: str) -> None:
    """Write one landscape as JSON, times in milliseconds; equal landscapes give equal bytes.

    Args:
        path: the file.
        landscape: the landscape.
        form: "t4", or "kernel_tuner" for a cache.

    Raises:
        UsageError: the file cannot be written.
        LandscapeError: the form is another one.
    """
    if form not in _FORMS:
        raise LandscapeError(f"no format {form!r}; known: csv, {', '.join(_FORMS)}")
    write_whole(path, (json.dumps(_FORMS[form](landscape), indent=1) + "\n").encode())


def _own_facts(landscape: Landscape) -> dict[str, object]:
    """Return the facts by which `tuner_json` knows a file that is written here."""
    problem = {} if landscape.problem is None else {"problem": fields_of(landscape.problem)}
    return {**problem, "gemmtune": version("gemmtune")}


def _t4(landscape: Landscape) -> dict[str, object]:
    facts = {**landscape.context, "kernel": landscape.name, **_own_facts(landscape)}
    names = [param.name for param in landscape.params]
    results = [_t4_result(point, names) for point in landscape.points.values()]
    return {"schema_version": "1.0.0", "metadata": {"timeunit": "milliseconds", **facts}, "results": results}


def _t4_result(point: Point, names: Sequence[str]) -> dict[str, object]:
    build, bench = (point.build_seconds or 0.0) * 1e3, point.gpu_seconds * 1e3
    found: dict[str, object] = {
        "configuration": {name: point.config[name] for name in names},
        "times": {"compilation": build, "benchmark": bench, "runtimes": [ns / 1e6 for ns in point.samples_ns]},
        "invalidity": _INVALIDITY[point.status],
        "correctness": int(point.status is Status.OK),
        "objectives": ["time"],
        "measurements": [],
    }
    if point.time_ns is not None:
        found["measurements"] = [{"name": "time", "value": point.time_ns / 1e6, "unit": "ms"}]
    return found


def _cache(landscape: Landscape) -> dict[str, object]:
    names = [param.name for param in landscape.params]
    entries = {",".join(str(p.config[name]) for name in names): _cache_entry(p) for p in landscape.points.values()}
    return {
        "device_name": landscape.context.get("device", ""),
        "kernel_name": landscape.name,
        "problem_size": landscape.name,
        "tune_params_keys": names,
        "tune_params": {param.name: list(param.values) for param in landscape.params},
        "objective": "time",
        "metadata": {**landscape.context, **_own_facts(landscape)},
        "cache": entries,
    }


def _cache_entry(point: Point) -> dict[str, object]:
    build, bench = (point.build_seconds or 0.0) * 1e3, point.gpu_seconds * 1e3
    outcome: dict[str, object] = {"time": _CACHE_ERRORS.get(point.status, "RuntimeFailedConfig")}
    if point.time_ns is not None:
        outcome = {"time": point.time_ns / 1e6, "times": [ns / 1e6 for ns in point.samples_ns or (point.time_ns,)]}
    costs = {"compile_time": build, "benchmark_time": bench}
    return {**point.config, **outcome, **costs, "verification_time": 0, "strategy_time": 0, "framework_time": 0}


_FORMS: Mapping[str, Callable[[Landscape], dict[str, object]]] = {"t4": _t4, "kernel_tuner": _cache}
