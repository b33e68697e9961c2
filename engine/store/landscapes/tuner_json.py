"""Read the JSON files of other auto-tuners: Kernel Tuner's caches, results in the T4 format, KTT's and CLTune's.

Each file is one landscape, with every config that was evaluated.

    Kernel Tuner, times in milliseconds:
    {"device_name": "NVIDIA A100", "kernel_name": "convolution", "tune_params_keys": ["block_size_x", "tile"],
     "cache": {"16,1": {"block_size_x": 16, "tile": 1, "time": 3.87, "times": [3.97, 3.77], "compile_time": 918.6, ...},
               "16,2": {"block_size_x": 16, "tile": 2, "time": "RuntimeFailedConfig", ...}}}
    T4, FAIR sharing of auto-tuning data, times in `timeunit`:
    {"metadata": {"timeunit": "milliseconds"},
     "results": [{"configuration": {"block_size_x": 16, "tile": 1}, "objectives": ["time"], "invalidity": "correct",
                  "times": {"compilation": 918.6, "benchmark": 126.4, "runtimes": [3.97, 3.77], ...},
                  "measurements": [{"name": "time", "value": 3.87, "unit": "ms"}]}, ...]}
    KTT, times in `TimeUnit`:
    {"Metadata": {"Device": "NVIDIA A100", "TimeUnit": "Microseconds"},
     "Results": [{"Status": "Ok", "TotalDuration": 87.2, "TotalOverhead": 410.0, "KernelName": "gemm",
                  "Configuration": [{"Name": "block_size_x", "Value": 16}, ...], ...}]}
    CLTune and CLBlast, times in milliseconds, without the configs that failed:
    {"device": "A100", "results": [{"kernel": "gemm", "time": 0.087, "parameters": {"block_size_x": 16}}, ...]}

Sources: `process_cache`, `correct_open_cache` and `store_cache` in kernel_tuner/util.py and `get_t4_results` in
kernel_tuner/file_utils.py, version 1.5.0; results-schema.json of github.com/odgaard/TuningSchema, branch T4;
Source/Output/JsonConverters.cpp of github.com/HiPerCoRe/KTT; `PrintJSON` of github.com/CNugteren/CLTune.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from gemmtune.engine.io.numbers import checked, shown
from gemmtune.engine.io.reading import parse_json
from gemmtune.engine.records.config import Config, Value
from gemmtune.engine.records.errors import LandscapeError, ProblemError, UnknownPlugin
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.kinds import workload_of
from gemmtune.engine.store.files import file_stem
from gemmtune.engine.store.landscapes.csv_cells import LEAST_NS, MOST_NS, read_status
from gemmtune.engine.store.landscapes.csv_reader import recorded_params

_CACHE_KEY = '"tune_params_keys"'  # text that every cache of Kernel Tuner has
_CUT_OFF = "the file ends inside an entry, which is left out"
_MOST_CUTS = 8  # brackets that an entry may have
_CACHE_ERRORS = ("InvalidConfig", "CompilationFailedConfig", "RuntimeFailedConfig", "ErrorConfig")
_CACHE_COSTS = ("compile_time", "verification_time", "benchmark_time", "framework_time", "strategy_time")
_T4_COSTS = ("compilation", "benchmark", "framework", "search_algorithm", "validation")
_NOT_FACTS = ("timeunit", "kernel", "gemmtune")  # metadata of a file of ours that is no fact of its task
_KTT_STATUS = {
    "Ok": Status.OK,
    "ComputationFailed": Status.RUN_FAILED,
    "ValidationFailed": Status.WRONG_RESULT,
    "CompilationFailed": Status.BUILD_FAILED,
    "DeviceLimitsExceeded": Status.BUILD_FAILED,
}
_UNITS_NS = {
    **dict.fromkeys(("s", "second", "seconds"), 1e9),
    **dict.fromkeys(("ms", "millisecond", "milliseconds", "miliseconds"), 1e6),  # the last in files of benchmark_hub
    **dict.fromkeys(("us", "µs", "microsecond", "microseconds"), 1e3),
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), 1.0),
}


def parse(file: Path, text: str) -> Landscape:
    """Return the landscape of a JSON file; `file` names it and the errors.

    Raises:
        LandscapeError: the text is no JSON, or of no format that is known, or breaks its format.
    """
    found, is_cut = _load(file, text)
    if "cache" in found:
        return _parse_cache(file, found, is_cut=is_cut)
    if "results" in found:
        results = _array(f"{file}, results", found["results"])
        is_cltune = bool(results) and isinstance(results[0], Mapping) and "parameters" in results[0]
        return _parse_cltune(file, found, results) if is_cltune else _parse_t4(file, found)
    if "Results" in found:
        return _parse_ktt(file, found)
    keys = ", ".join(found) or "none"
    raise LandscapeError(
        f"{file} has neither 'cache', as a cache file of Kernel Tuner, nor 'results', as T4 and CLTune, nor 'Results', "
        f"as KTT; it has: {keys}; further formats that are read: CSV with the columns of docs/research.md"
    )


def _load(file: Path, text: str) -> tuple[Mapping[str, object], bool]:
    """Return the content of a file, and whether its end is cut off.

    The cache of a run that goes on, or was broken off, has no closing brackets: it ends behind an entry or inside one.
    """
    body = text.strip()
    try:
        return _object(str(file), parse_json(body, str(file), LandscapeError)), False
    except LandscapeError:
        if _CACHE_KEY not in body or _is_json(body):
            raise
        end = len(body)
        for _ in range(_MOST_CUTS):
            end = body.rfind("}", 0, end)
            if _is_json(closed := f"{body[: end + 1]}}}}}"):
                is_cut = body[end + 1 :] not in ("", ",")
                return _object(str(file), parse_json(closed, str(file), LandscapeError)), is_cut
        raise


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (RecursionError, ValueError) as error:
        return not isinstance(error, json.JSONDecodeError)  # the others say that it is JSON, but out of bounds
    return True


def _parse_cache(file: Path, found: Mapping[str, object], *, is_cut: bool) -> Landscape:
    objective = found.get("objective", "time")
    if "time" not in (objective if isinstance(objective, list) else [objective]):
        raise LandscapeError(
            f"{file} is the cache of a search for {shown(objective)}, and a landscape holds times; "
            "gemmtune takes caches whose objective is 'time'"
        )
    names = [str(name) for name in _array(f"{file}, tune_params_keys", found.get("tune_params_keys"))]
    if twice := [name for at, name in enumerate(names) if name in names[:at]]:
        raise LandscapeError(f"{file}: tune_params_keys names {twice[0]!r} twice; a parameter has one value per config")
    entries = _object(f"{file}, cache", found["cache"])
    points = [
        _cache_point(f"{file}, cache entry {key}", names, _object(f"{file}, {key}", entry))
        for key, entry in entries.items()
    ]
    if len({point.config for point in points}) < len(points):
        raise LandscapeError(f"{file}: two cache entries have one config; does tune_params_keys lack a parameter?")
    known = _known(device=found.get("device_name"), kernel=found.get("kernel_name"), cut=is_cut and _CUT_OFF)
    context, problem = _own_facts(file, found.get("metadata"))
    return _landscape(file, names, points, {**known, **context}, problem)


def _cache_point(where: str, names: Sequence[str], entry: Mapping[str, object]) -> Point:
    config = _config(where, {name: entry[name] for name in names if name in entry})
    cost = _sum(where, entry, _CACHE_COSTS)
    cost_seconds = None if cost is None else cost / 1e3
    # The error class has a key of its own since version 1.0; before, it took the place of the objective.
    failure = next((value for value in entry.values() if isinstance(value, str) and value in _CACHE_ERRORS), None)
    if failure is not None:
        status, _ = read_status(failure)
        return Point(config, status, None, reason=failure, cost_seconds=cost_seconds)
    time = entry.get("time")
    if isinstance(time, str) or (isinstance(time, float) and not LEAST_NS <= time * _UNITS_NS["ms"] <= MOST_NS):
        return Point(config, Status.RUN_FAILED, None, reason=f"time={shown(time)}", cost_seconds=cost_seconds)
    time_ns = _time_ns(f"{where}, time", time, _UNITS_NS["ms"])
    samples_ns = _samples_ns(f"{where}, times", entry.get("times", []), _UNITS_NS["ms"])
    return Point(config, Status.OK, time_ns, samples_ns, cost_seconds=cost_seconds)


def _parse_t4(file: Path, found: Mapping[str, object]) -> Landscape:
    metadata = _object(f"{file}, metadata", found.get("metadata", {}))
    unit = str(metadata.get("timeunit", "seconds"))
    if unit.lower() not in _UNITS_NS:
        raise LandscapeError(f"{file}: unknown metadata.timeunit {unit!r}; known: {', '.join(_UNITS_NS)}")
    results = [_object(f"{file}, results[{i}]", x) for i, x in enumerate(_array(f"{file}, results", found["results"]))]
    points = [_t4_point(f"{file}, results[{i}]", x, _UNITS_NS[unit.lower()]) for i, x in enumerate(results)]
    names = list(_object(str(file), results[0]["configuration"])) if results else []
    known = _known(device=metadata.get("device"), kernel=metadata.get("kernel"))
    context, problem = _own_facts(file, metadata)
    return _landscape(file, names, points, {**known, **context}, problem)


def _t4_point(where: str, result: Mapping[str, object], unit_ns: float) -> Point:
    config = _config(f"{where}, configuration", _object(f"{where}, configuration", result.get("configuration")))
    times = _object(f"{where}, times", result.get("times"))
    cost = _sum(f"{where}, times", times, _T4_COSTS)
    cost_seconds = None if cost is None else cost * unit_ns / 1e9
    status, reason = read_status(_text(f"{where}, invalidity", result.get("invalidity")))
    if status is not Status.OK:
        return Point(config, status, None, reason=reason, cost_seconds=cost_seconds)
    samples_ns = _samples_ns(f"{where}, times.runtimes", times.get("runtimes", []), unit_ns)
    return Point(config, status, _t4_time_ns(where, result, samples_ns), samples_ns, cost_seconds=cost_seconds)


def _t4_time_ns(where: str, result: Mapping[str, object], samples_ns: Sequence[float]) -> float:
    """Return the objective if it is a time, else the measurement `time`, else the mean of the launches.

    Raises:
        LandscapeError: there is no time, or each objective is neither a time nor a rate, such as GFLOP/s.
    """
    measured = {}
    for entry in _array(f"{where}, measurements", result.get("measurements", [])):
        measurement = _object(f"{where}, measurements", entry)
        measured[str(measurement.get("name"))] = measurement
    objectives = [str(name) for name in _array(f"{where}, objectives", result.get("objectives", []))]
    units = {name: str(measured.get(name, {}).get("unit", "")).lower() for name in objectives}
    if units and not any(unit in _UNITS_NS or "time" in name or "/s" in name + unit for name, unit in units.items()):
        raise LandscapeError(
            f"{where} is of a search for {', '.join(objectives)}, and a landscape holds times; "
            "gemmtune takes T4 files whose objective is a time or a rate, such as GFLOP/s"
        )
    for name in (*objectives, "time"):
        unit_ns = _UNITS_NS.get(str(measured[name].get("unit", "")).lower()) if name in measured else None
        if unit_ns is not None:
            return _time_ns(f"{where}, measurement {name}", measured[name].get("value"), unit_ns)
    if samples_ns:
        return fmean(samples_ns)
    known = ", ".join(f"{name} [{m.get('unit', '')}]" for name, m in measured.items()) or "none"
    raise LandscapeError(f"{where}: no time: times.runtimes is empty, and no measurement has a unit of time ({known})")


def _parse_ktt(file: Path, found: Mapping[str, object]) -> Landscape:
    metadata = _object(f"{file}, Metadata", found.get("Metadata", {}))
    unit_ns = _UNITS_NS.get(str(metadata.get("TimeUnit", "")).lower())
    if unit_ns is None:
        raise LandscapeError(
            f"{file}: unknown Metadata.TimeUnit {metadata.get('TimeUnit')!r}; known: {', '.join(_UNITS_NS)}"
        )
    points = []
    for index, each in enumerate(_array(f"{file}, Results", found["Results"])):
        where = f"{file}, Results[{index}]"
        result = _object(where, each)
        pairs = [_object(f"{where}, Configuration", pair) for pair in _array(where, result.get("Configuration"))]
        config = _config(where, {str(pair.get("Name")): pair.get("Value") for pair in pairs})
        cost = _sum(where, result, ("TotalDuration", "TotalOverhead"))
        cost_seconds = None if cost is None else cost * unit_ns / 1e9
        word = _text(f"{where}, Status", result.get("Status"))
        status = _KTT_STATUS.get(word, Status.RUN_FAILED)
        is_ok = status is Status.OK
        time_ns = _time_ns(f"{where}, TotalDuration", result.get("TotalDuration"), unit_ns) if is_ok else None
        points.append(Point(config, status, time_ns, reason="" if is_ok else word, cost_seconds=cost_seconds))
    return _landscape(file, list(points[0].config) if points else [], points, _known(device=metadata.get("Device")))


def _parse_cltune(file: Path, found: Mapping[str, object], results: Sequence[object]) -> Landscape:
    points = []
    for index, each in enumerate(results):
        where = f"{file}, results[{index}]"
        result = _object(where, each)
        config = _config(where, _object(f"{where}, parameters", result.get("parameters")))
        points.append(Point(config, Status.OK, _time_ns(f"{where}, time", result.get("time"), _UNITS_NS["ms"])))
    return _landscape(file, list(points[0].config), points, _known(device=found.get("device")))


def _known(**facts: object) -> dict[str, str]:
    return {name: str(fact) for name, fact in facts.items() if fact}


def _own_facts(file: Path, metadata: object) -> tuple[dict[str, str], Workload | None]:
    """Return the facts and the problem of a file that `tuner_writer` wrote; none of another tool's."""
    if not isinstance(metadata, Mapping) or "gemmtune" not in metadata:
        return {}, None
    facts = {name: fact for name, fact in metadata.items() if isinstance(fact, str) and name not in _NOT_FACTS}
    if "problem" not in metadata:
        return facts, None
    fields = _object(f"{file}, metadata.problem", metadata["problem"])
    try:
        return facts, workload_of({name: str(field) for name, field in fields.items()})
    except (ProblemError, UnknownPlugin) as error:
        raise LandscapeError(f"{file}, metadata.problem: {error}") from None


def _landscape(
    file: Path,
    names: Sequence[str],
    points: Iterable[Point],
    context: Mapping[str, str],
    problem: Workload | None = None,
) -> Landscape:
    found: dict[Config, Point] = {}
    for point in points:
        if set(point.config) != set(names):
            raise LandscapeError(f"{file}: {point.config} does not have the parameters {', '.join(names) or 'of any'}")
        found.setdefault(point.config, point)  # a tuner that returns to a config writes it again, at a cost of 0
    if not found or not names:
        raise LandscapeError(f"{file} holds no config; a landscape has at least one, with at least one parameter")
    name = file_stem(file) if problem is None else problem.name
    return Landscape(name, str(file), recorded_params(names, found), found, problem, context)


def _config(where: str, values: Mapping[str, object]) -> Config:
    plain: dict[str, Value] = {}
    for name, value in values.items():
        if not isinstance(value, bool | int | float | str):
            raise LandscapeError(f"{where}, {name}: expected true, false, a number or a text, found {shown(value)}")
        plain[name] = checked(value, f"{where}, {name}", float, error=LandscapeError) if type(value) is float else value
    return Config(plain)


def _sum(where: str, times: Mapping[str, object], names: Sequence[str]) -> float | None:
    """Return the sum of those entries of `times` that are there, in the file's unit; None if there are none."""
    given = [(f"{where}, {name}", times[name]) for name in names if name in times]
    found = [checked(time, name, float, least=0, most=MOST_NS, error=LandscapeError) for name, time in given]
    return sum(found) if found else None


def _samples_ns(where: str, launches: object, unit_ns: float) -> tuple[float, ...]:
    return tuple(_time_ns(where, launch, unit_ns) for launch in _array(where, launches))


def _time_ns(where: str, time: object, unit_ns: float) -> float:
    least, most = LEAST_NS / unit_ns, MOST_NS / unit_ns
    return checked(time, where, float, least=least, most=most, error=LandscapeError) * unit_ns


def _object(where: str, found: object) -> Mapping[str, object]:
    if not isinstance(found, Mapping):
        raise LandscapeError(f"{where}: expected an object, found {shown(found)}")
    return found


def _text(where: str, found: object) -> str:
    if not isinstance(found, str) or not found:
        raise LandscapeError(f"{where}: expected a text, found {shown(found)}")
    return found


def _array(where: str, found: object) -> Sequence[object]:
    if not isinstance(found, list):
        raise LandscapeError(f"{where}: expected an array, found {shown(found)}")
    return found
