"""Read a plan from a campaign file in TOML.

space = "triton_mm"                 # or a list of names
sampler = "transfer"                # or a class: "./mine.py:MySampler", beside the campaign file
budget = 64                         # evaluations per task
seed = 0
seconds = 3600                      # searching ends then; or gpu_seconds: wall time × GPUs
regret = 0.02                       # a search ends when its regret bound is at most this
margin = 0.02                       # lead over the vendor library that a row needs to ship anything else
portfolio = true                    # few configs for all problems; or { worst = 0.02, mean = 0.005 }: most loss
ranges = true                       # rows for ranges of m, too; or { worst = 0.02 }: largest loss
hold_out = ["80x4096x4096:bf16:nt"] # problems that check the ranges, and have no say in them
problems = ["16x4096x4096:bf16:nt", "2048x4096x4096:bf16:nt"]

[[problem]]                         # the long form, with a weight
m = 1
n = 6144
k = 4096
dtype = "bf16"
layout = "nt"
weight = 20

[[problem]]                         # one GEMM at several m
m = [16, 64, 256]
hold_out = [40]
n = 4096
k = 4096
dynamic_m = true
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.io.numbers import checked, shown
from gemmtune.engine.io.paths import FileKind, find
from gemmtune.engine.io.reading import parse_toml, read_text
from gemmtune.engine.records.errors import UsageError, did_you_mean
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.scheduling.stopping import Limits
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import kind_of, parse_workload, workload_of
from gemmtune.engine.seams.sampler_class import sampler_named
from gemmtune.engine.seams.workload import WorkloadKind
from gemmtune.engine.tables.portfolio import LossLimits
from gemmtune.engine.tables.ranges import RangeLimits

_T = TypeVar("_T")
_KINDS: dict[type, str] = {
    bool: "true or false",
    str: "a text",
    list: "a list of tables",
    dict: "a table of m, n, k, ...",
}
_VALUES = ("sampler", "objective", "budget", "seed", "batch", "margin")
_NAMES = {"space": "spaces", "pruner": "pruners"}
_LOSSES: dict[str, type[Any]] = {"portfolio": LossLimits, "ranges": RangeLimits}
_LIMITS = tuple(field.name for field in fields(Limits))
_OPTIONS = ("device", "out", "database", "fleet", "builders", "events", "replay")
KEY_NAMES = ("problem", "problems", "hold_out", *_VALUES, *_NAMES, *_LOSSES, *_LIMITS)
"""Names of the keys of a campaign file."""


def read_plan(path: Path, recordings: Mapping[str, Callable[[Path], Plan]] = MappingProxyType({})) -> Plan:
    """Read a campaign file, or what a program recorded.

    Args:
        path: the file.
        recordings: readers of recordings, by the suffixes of their files.

    Raises:
        UsageError: it is missing, not TOML, or has an unknown key, a value of the wrong kind or one out of bounds.
    """
    if not path.exists() and _is_problem(str(path)):
        raise UsageError(f"{path} is a problem and no campaign file; name it with --problem {path}")
    path = Path(find(path, FileKind.CAMPAIGN, FileKind.RECORDING))
    recorded, content = recordings.get(path.suffix), dict[str, Any]()
    if recorded is not None:
        plan = recorded(path)
    else:
        content = parse_toml(read_text(path, "campaign"), f"campaign {path}")
        try:
            plan = _plan(content, path.parent)
        except UsageError as error:
            raise UsageError(f"campaign {path}: {error}") from None
    if not plan.problems and (not content or {"problem", "problems"} & set(content)):
        raise UsageError(f"campaign {path} has no problems; name some, or leave it out to tune the recorded ones")
    return plan


def _is_problem(text: str) -> bool:
    if text.partition(":")[0] in registry.names(WorkloadKind):
        return True  # not parsed: an own kernel's text names a file, which parsing imports
    try:
        parse_workload(text)
    except UsageError:
        return False
    return True


def _plan(content: Mapping[str, Any], folder: Path) -> Plan:
    _check_keys(content, KEY_NAMES)
    default = Plan()
    given = {key: _checked(key, content[key], type(getattr(default, key))) for key in _VALUES if key in content}
    given |= {field: tuple(_texts(key, content[key])) for key, field in _NAMES.items() if key in content}
    given |= {key: _losses(key, content[key], kind) for key, kind in _LOSSES.items() if key in content}
    if "sampler" in given:
        given["sampler"] = sampler_named(given["sampler"], folder)
    limits = Limits(**{key: _checked(key, content[key], float) for key in _LIMITS if key in content})
    tables = [
        _checked(f"problem {number}", table, dict)
        for number, table in enumerate(_checked("problem", content.get("problem", []), list), 1)
    ]
    for key in ("problems", "hold_out"):
        if any(isinstance(each, dict) for each in _listed(content.get(key, []))):
            raise UsageError(f"[[{key}]] is no table: a problem's long form is [[problem]], and {key} a list of texts")
    problems, held_out = (
        tuple(parse_workload(text) for text in _texts(key, content.get(key, []))) for key in ("problems", "hold_out")
    )
    for table in tables:
        if misplaced := sorted((set(KEY_NAMES) - {"batch", "hold_out"}) & table.keys()):
            raise UsageError(f"{misplaced[0]!r} stands in [[problem]]: keys of the campaign come before the first one")
        listed = _kind(table).listed
        if table.get(listed) == []:
            raise UsageError(f"{listed}=[] names no size; name some, or leave the problem out")
        problems += _problems(table, listed, table.get(listed, ""))
        held_out += _problems(table, listed, table.get("hold_out", []))
    return Plan(problems=problems, held_out=held_out, limits=limits, **given)


def _problems(table: Mapping[str, object], listed: str, sizes: object) -> tuple[Workload, ...]:
    """Return the problems of a `[[problem]]` table at one size or several; `listed` names the size's field."""
    each = sizes if isinstance(sizes, list) else [sizes]
    integers = [(name, table[name]) for name in _kind(table).sizes if name in table and name != listed]
    for name, value in (*integers, *((listed, size) for size in each if size != "")):
        checked(value, name, int)
    rest = {name: str(value) for name, value in table.items() if name not in (listed, "hold_out")}
    return tuple(workload_of({**rest, listed: str(size)} if listed else rest) for size in each)


def _kind(table: Mapping[str, object]) -> WorkloadKind[Workload]:
    return kind_of(str(table.get("kind", "gemm")))


def _losses(key: str, value: object, kind: type[Any]) -> object:
    """Return the default limits for true, none for false, else those that a table names."""
    if isinstance(value, bool):
        return kind() if value else None
    known = {field.name: type(field.default) for field in fields(kind)}
    if not isinstance(value, dict):
        raise UsageError(f"{key}={shown(value)} is not true, false or a table of {' and '.join(known)}")
    _check_keys(value, known, f" in {key}")
    return kind(**{name: _checked(f"{key}.{name}", each, known[name]) for name, each in value.items()})


def _check_keys(content: Iterable[str], known: Iterable[str], where: str = "") -> None:
    """Refuse the first key that is not known."""
    unknown = sorted(set(content).difference(known))
    if unknown:
        key = unknown[0]
        if not where and key in _OPTIONS:
            raise UsageError(f"{key!r} belongs to a machine and not to a campaign; it is the option --{key}")
        raise UsageError(f"unknown key {key!r}{where}; {did_you_mean(key, known)}known: {', '.join(sorted(known))}")


def _texts(key: str, value: object) -> list[str]:
    return [_checked(key, each, str) for each in _listed(value)]


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _checked(key: str, value: object, kind: type[_T]) -> _T:
    """Return a value that is of the kind, or an integer where a number is due."""
    if kind in (int, float):
        return checked(value, key, kind)  # type: ignore[type-var]
    if type(value) is not kind:
        raise UsageError(f"{key}={shown(value)} is not {_KINDS[kind]}")
    return value
