"""Read a plan from a campaign file in TOML; see docs/campaign-keys.md."""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from gemmtune.engine.campaign.plan import OPTIONS, Plan
from gemmtune.engine.io.numbers import checked, shown
from gemmtune.engine.io.options import Option, Value, limits_of
from gemmtune.engine.io.paths import FileKind, find
from gemmtune.engine.io.reading import parse_toml, read_text
from gemmtune.engine.records.errors import UsageError, did_you_mean
from gemmtune.engine.records.workload import Workload, summed
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import expand_workloads, kind_of, parse_workload, workload_of
from gemmtune.engine.seams.plugin_class import adopted, class_named
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.workload import WorkloadKind

_T = TypeVar("_T")
_KINDS: dict[type, str] = {str: "a text", list: "a list of tables", dict: "a table of m, n, k, ..."}
_OPTIONS = ("device", "out", "database", "fleet", "builders", "events", "replay")
KEY_NAMES = ("problem", "problems", *OPTIONS)
"""Names of the keys of a campaign file."""


Recordings: TypeAlias = Mapping[str, Callable[[Path], Plan]]
"""Readers of recordings, by the suffixes of their files."""


def read_plan(path: Path, recordings: Recordings = MappingProxyType({})) -> Plan:
    """Read a campaign file, or what a program recorded.

    Raises:
        UsageError: it is missing, not TOML, or has an unknown key, a value of the wrong kind or one out of bounds.
    """
    return Plan().changed(**_stated(path, recordings))


def read_plans(
    paths: Iterable[Path], recordings: Recordings = MappingProxyType({}), settled: Container[str] = ()
) -> Plan:
    """Read several campaign files or recordings as one plan: the weights of equal problems add up.

    Args:
        paths: the files.
        recordings: readers of recordings, by the suffixes of their files.
        settled: names of options whose values are given elsewhere, so that files may differ in them.

    Raises:
        UsageError: a file is malformed, as in `read_plan`, or two contradict each other; the message names both.
    """
    values: dict[str, Any] = {}
    said: dict[str, Path] = {}
    places: dict[Workload, tuple[str, Path]] = {}
    lists: dict[str, list[Workload]] = {"problems": [], "held_out": []}
    for path in paths:
        stated = _stated(path, recordings)
        for field, workloads in lists.items():
            for each in stated.pop(field, ()):
                workloads.append(each)
                other, before = places.setdefault(each, (field, path))
                if other != field:
                    held, tuned = (path, before) if field == "held_out" else (before, path)
                    raise UsageError(f"{each.name} is held out in {held} and a problem to tune in {tuned}: drop one")
        for name, option in OPTIONS.items():
            if option.field not in stated or name in settled:
                continue
            value = stated[option.field]
            if values.setdefault(option.field, value) != value:
                both = f"{said[name]} has {name} = {_worded(values[option.field])}, and {path} {_worded(value)}"
                raise UsageError(f"{both}: make them equal, or give the option --{name.replace('_', '-')}")
            said.setdefault(name, path)
    return Plan().changed(**values, **{field: summed(workloads) for field, workloads in lists.items()})


def _worded(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else shown(value)


def _stated(path: Path, recordings: Recordings) -> dict[str, Any]:
    """Return the values that a file states, by the fields of a plan, which they make."""
    if not path.exists() and _is_problem(str(path)):
        raise UsageError(f"{path} is a problem and no campaign file; name it with --problem {path}")
    path = Path(find(path, FileKind.CAMPAIGN, FileKind.RECORDING))
    recorded, content = recordings.get(path.suffix), dict[str, Any]()
    if recorded is not None:
        plan, unchanged = recorded(path), Plan()
        stated = {f.name: v for f in fields(Plan) if (v := getattr(plan, f.name)) != getattr(unchanged, f.name)}
    else:
        content = parse_toml(read_text(path, "campaign"), f"campaign {path}")
        try:
            stated = _values(content, path.parent)
            Plan().changed(**stated)
        except UsageError as error:
            raise UsageError(f"campaign {path}: {error}") from None
    if not stated.get("problems") and (not content or {"problem", "problems"} & set(content)):
        raise UsageError(f"campaign {path} has no problems; name some, or leave it out to tune the recorded ones")
    return stated


def _is_problem(text: str) -> bool:
    if text.partition(":")[0] in registry.names(WorkloadKind):
        return True  # not parsed: an own kernel's text names a file, which parsing imports
    try:
        parse_workload(text)
    except UsageError:
        return False
    return True


def _values(content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
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
        listed = _kind(table).listed_in(table)
        if table.get(listed) == []:
            raise UsageError(f"{listed}=[] names no size; name some, or leave the problem out")
        problems += _problems(table, listed, table.get(listed, ""))
        held_out += _problems(table, listed, table.get("hold_out", []))
    return {"problems": problems, "held_out": held_out, **given}


def _value(option: Option, value: object, folder: Path) -> Any:  # noqa: ANN401 (of the option's kind)
    """Return the value of an option's field; a plan checks its numbers and names."""
    match option.value:
        case Value.NAME:
            return adopted(option.of, _checked(option.name, value, str), folder)
        case Value.NAMES:
            texts = _texts(option.name, value)
            return tuple(adopted(option.of, text, folder) for text in texts)
        case Value.SAMPLER:
            return class_named(Sampler, _checked(option.name, value, str), folder)
        case Value.PROBLEMS:
            return _workloads(option.name, value)
        case Value.LIMITS:
            return limits_of(option, value)
    return value


def _workloads(key: str, value: object) -> tuple[Workload, ...]:
    return tuple(each for text in _texts(key, value) for each in expand_workloads(text))


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


def _check_keys(content: Iterable[str], known: Iterable[str]) -> None:
    """Refuse the first key that is not known."""
    for key in sorted(set(content).difference(known)):
        if key in _OPTIONS:
            raise UsageError(f"{key!r} belongs to a machine and not to a campaign; it is the option --{key}")
        raise UsageError(f"unknown key {key!r}; {did_you_mean(key, known)}known: {', '.join(sorted(known))}")


def _texts(key: str, value: object) -> list[str]:
    return [_checked(key, each, str) for each in _listed(value)]


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _checked(key: str, value: object, kind: type[_T]) -> _T:
    """Return a value that is of the kind."""
    if type(value) is not kind:
        raise UsageError(f"{key}={shown(value)} is not {_KINDS[kind]}")
    return value
