"""Results in the T4 format, FAIR sharing of auto-tuning data, as a landscape: one task, every config evaluated.

    {"schema_version": "1.0.0", "metadata": {"timeunit": "milliseconds"},
     "results": [{"configuration": {"block_size_x": 16, "tile": 1}, "objectives": ["time"],
                  "times": {"compilation": 918.6, "benchmark": 126.4, "runtimes": [3.97, 3.77], ...},
                  "invalidity": "correct", "correctness": 1,
                  "measurements": [{"name": "time", "value": 3.87, "unit": "ms"}]}, ...]}

The members of `times` have the file's unit of time. Source: results-schema.json of github.com/odgaard/TuningSchema,
branch T4, and what Kernel Tuner 1.5.0 writes (`get_t4_results` in kernel_tuner/file_utils.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from gemmtune.engine.records.errors import LandscapeError
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.store.landscapes.cells import read_status
from gemmtune.engine.store.landscapes.foreign_json import config_of, landscape_of, listing, number, table

__all__ = ["parse"]

_UNITS_NS = {
    **dict.fromkeys(("s", "second", "seconds"), 1e9),
    **dict.fromkeys(("ms", "millisecond", "milliseconds", "miliseconds"), 1e6),  # the last in files of benchmark_hub
    **dict.fromkeys(("us", "µs", "microsecond", "microseconds"), 1e3),
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), 1.0),
}
_COSTS = ("compilation", "benchmark", "framework", "search_algorithm", "validation")


def parse(file: Path, found: Mapping[str, object]) -> Landscape:
    """The landscape of the results; `file` names it and the errors.

    Raises:
        LandscapeError: the object breaks the format, or what was minimised is no time.
    """
    metadata = table(f"{file}, metadata", found.get("metadata", {}))
    unit = str(metadata.get("timeunit", "seconds"))
    if unit.lower() not in _UNITS_NS:
        raise LandscapeError(f"{file}: unknown metadata.timeunit {unit!r}; known: {', '.join(_UNITS_NS)}")
    results = listing(f"{file}, results", found["results"])
    points = []
    for place, result in enumerate(results):
        where = f"{file}, results[{place}]"
        points.append(_point(where, table(where, result), _UNITS_NS[unit.lower()]))
    return landscape_of(file, list(points[0].config) if points else [], points)


def _point(where: str, result: Mapping[str, object], unit_ns: float) -> Point:
    config = config_of(f"{where}, configuration", table(f"{where}, configuration", result.get("configuration")))
    times = table(f"{where}, times", result.get("times"))
    costs = [number(f"{where}, times.{name}", times[name]) for name in _COSTS if name in times]
    cost_seconds = sum(costs) * unit_ns / 1e9 if costs else None
    status, reason = read_status(str(result.get("invalidity", "")))
    if status is not Status.OK:
        return Point(config, status, None, reason=reason, cost_seconds=cost_seconds)
    launches = listing(f"{where}, times.runtimes", times.get("runtimes", []))
    samples_ns = tuple(number(f"{where}, times.runtimes", launch, above=0) * unit_ns for launch in launches)
    time_ns = _time_ns(where, result, samples_ns)
    return Point(config, status, time_ns, samples_ns, cost_seconds=cost_seconds)


def _time_ns(where: str, result: Mapping[str, object], samples_ns: tuple[float, ...]) -> float:
    """The objective, where it is a time; else the measurement `time`; else the mean of the launches."""
    measured = {}
    for entry in listing(f"{where}, measurements", result.get("measurements", [])):
        measurement = table(f"{where}, measurements", entry)
        measured[str(measurement.get("name"))] = measurement
    objectives = [str(name) for name in listing(f"{where}, objectives", result.get("objectives", []))]
    for name in (*objectives, "time"):
        unit_ns = _UNITS_NS.get(str(measured[name].get("unit", "")).lower()) if name in measured else None
        if unit_ns is not None:
            return number(f"{where}, measurement {name}", measured[name].get("value"), above=0) * unit_ns
    if samples_ns:
        return fmean(samples_ns)
    known = ", ".join(f"{name} [{m.get('unit', '')}]" for name, m in measured.items()) or "none"
    raise LandscapeError(f"{where}: no time: times.runtimes is empty, and no measurement has a unit of time ({known})")
