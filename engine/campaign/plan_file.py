"""Read a plan from a campaign file in TOML; see docs/campaign-keys.md."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from gemmtune.engine.campaign.plan import OPTIONS, Plan
from gemmtune.engine.io.numbers import checked, shown
from gemmtune.engine.io.options import Option, Value, options_of
from gemmtune.engine.io.paths import FileKind, find
from gemmtune.engine.io.reading import parse_toml, read_text
from gemmtune.engine.records.errors import UsageError, did_you_mean
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import kind_of, parse_workload, workload_of
from gemmtune.engine.seams.sampler_class import sampler_named
from gemmtune.engine.seams.workload import WorkloadKind

_T = TypeVar("_T")
_KINDS: dict[type, str] = {str: "a text", list: "a list of tables", dict: "a table of m, n, k, ..."}
_OPTIONS = ("device", "out", "database", "fleet", "builders", "events", "replay")
KEY_NAMES = ("problem", "problems", *OPTIONS)
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
    tables = [
        _checked(f"problem {number}", table, dict)
        for number, table in enumerate(_checked("problem", content.get("problem", []), list), 1)
    ]
    for key in ("problems", "hold_out"):
        if any(isinstance(each, dict) for each in _listed(content.get(key, []))):
            raise UsageError(f"[[{key}]] is no table: a problem's long form is [[problem]], and {key} a list of texts")
    given = {each.field: _value(each, content[key], folder) for key, each in OPTIONS.items() if key in content}
    problems, held_out = _workloads("problems", content.get("problems", [])), given.pop("held_out", ())
    for table in tables:
        if misplaced := sorted((set(KEY_NAMES) - {"batch", "hold_out"}) & table.keys()):
            raise UsageError(f"{misplaced[0]!r} stands in [[problem]]: keys of the campaign come before the first one")
        listed = _kind(table).listed
        if table.get(listed) == []:
            raise UsageError(f"{listed}=[] names no size; name some, or leave the problem out")
        problems += _problems(table, listed, table.get(listed, ""))
        held_out += _problems(table, listed, table.get("hold_out", []))
    return Plan().changed(problems=problems, held_out=held_out, **given)


def _value(option: Option, value: object, folder: Path) -> Any:  # noqa: ANN401 (of the option's kind)
    """Return the value of an option's field; a plan checks its numbers and names."""
    match option.value:
        case Value.NAME:
            return _checked(option.name, value, str)
        case Value.NAMES:
            return tuple(_texts(option.name, value))
        case Value.SAMPLER:
            return sampler_named(_checked(option.name, value, str), folder)
        case Value.PROBLEMS:
            return _workloads(option.name, value)
        case Value.LIMITS:
            return _limits(option, value)
    return value


def _workloads(key: str, value: object) -> tuple[Workload, ...]:
    return tuple(parse_workload(text) for text in _texts(key, value))


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


def _limits(option: Option, value: object) -> object:
    """Return the default limits for true, none for false, else those that a table names."""
    if isinstance(value, bool):
        return option.of() if value else None
    known = options_of(option.of)
    if not isinstance(value, dict):
        raise UsageError(f"{option.name}={shown(value)} is not true, false or a table of {' and '.join(known)}")
    _check_keys(value, known, f" in {option.name}")
    return option.of(**value)


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
    """Return a value that is of the kind."""
    if type(value) is not kind:
        raise UsageError(f"{key}={shown(value)} is not {_KINDS[kind]}")
    return value
