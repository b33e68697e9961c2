"""Plans from files and from keyword arguments."""

import sys
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from textwrap import fill
from types import MappingProxyType
from typing import Any, TypeVar, Unpack

from gemmtune.engine.campaign import plan_file
from gemmtune.engine.campaign.plan import OPTIONS, Plan, PlanOptions, ProblemLike
from gemmtune.engine.consumers.inductor.capture.recorded import RECORD_SUFFIXES, recorded_plan
from gemmtune.engine.io.arguments import check_types, hints_of
from gemmtune.engine.io.options import Option, Value, limits_of, show_options
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.workload import Workload, summed
from gemmtune.engine.seams.kinds import expand_workloads
from gemmtune.engine.seams.plugin_class import adopted

_F = TypeVar("_F", bound=Callable[..., object])


def read_plan(*paths: str | PathLike[str], options: Mapping[str, object] = MappingProxyType({})) -> Plan:
    """Read campaign files, or the products that programs recorded; several become one plan.

    Args:
        paths: the files.
        options: options by keyword, as for `plan_with`; files may differ in those that are given.

    Raises:
        UsageError: a file is missing or malformed, has an unknown key, or a value of the wrong kind or out of bounds;
            or two files contradict each other.
    """
    settled = [name for name, value in options.items() if value is not None and value != [] and type(value) is not bool]
    return plan_file.read_plans(map(Path, paths), dict.fromkeys(RECORD_SUFFIXES, recorded_plan), settled)


def plan_with(plan: Plan, problems: ProblemLike | Iterable[ProblemLike], **options: Unpack[PlanOptions]) -> Plan:
    """Return a plan with further problems and other options; None and empty leave those that it has.

    A problem that is in both keeps the weight of the plan's. The weights of equal further ones add up, of those that
    are no texts. Without a named space, those of the problems are searched.

    Raises:
        UsageError: a value is of another type or out of bounds, or names nothing.
    """
    hints = hints_of(PlanOptions)
    check_types(options, {name: hints[name] for name, each in OPTIONS.items() if not each.is_number})
    given = {each.field: _value(plan, each, options.get(name)) for name, each in OPTIONS.items()}
    added = tuple(each for each in parse_problems(problems) if each not in plan.problems)
    given["problems"] = (*plan.problems, *added)
    if not given["spaces"] and plan.spaces == Plan().spaces:
        named = (name for each in given["problems"] for name in (each.searched_space, *each.compared_spaces))
        given["spaces"] = tuple(dict.fromkeys(named))
    return plan.changed(**{name: value for name, value in given.items() if value not in (None, ())})


def _value(plan: Plan, option: Option, value: Any) -> Any:  # noqa: ANN401 (of the option's kind)
    """Return the value of an option's field; None and empty for one that is not given."""
    match option.value:
        case Value.NAME:
            return value and adopted(option.of, value)
        case Value.NAMES:
            given = (value,) if isinstance(value, str | type) else tuple(value or ())
            return tuple(adopted(option.of, each) for each in given)
        case Value.PROBLEMS:
            return parse_problems(value or ())
        case Value.LIMITS:
            return (value is True and getattr(plan, option.field)) or limits_of(option, value or False)
        case Value.FLAG:
            return value or None  # what is not given leaves the plan as it is
    return value


def takes_options(function: _F) -> _F:
    """Show what `**options` stands for in a function's signature and docstring."""
    types = hints_of(PlanOptions)
    show_options(function, "campaign", {option: types[name] for name, option in OPTIONS.items()})
    lines = []
    for name, option in OPTIONS.items():
        text = f"{name}: {option.phrase}{f'; by default {option.shown}' if option.shown else ''}."
        lines.append(fill(text, 120, initial_indent=" " * 8, subsequent_indent=" " * 12))
    place = "        **options: options of the plan."
    function.__doc__ = (function.__doc__ or "").replace(place, "\n".join(lines))
    return function


def parse_problems(problems: ProblemLike | Iterable[ProblemLike]) -> tuple[Workload, ...]:
    """Return the problems, each text parsed, and each kernel's class by its cases; a single one may stand for a list.

    The weights of equal ones add up, of those that are no texts.

    Raises:
        ProblemError: a text is malformed or a size is out of bounds.
    """
    those = (problems,) if isinstance(problems, str | Workload | type) else tuple(problems)
    sums = {each: each for each in summed(each for each in those if isinstance(each, Workload))}
    parsed: list[Workload] = []
    for each in those:
        if not isinstance(each, Workload):
            parsed += _workloads(each)
        elif each in sums:
            parsed.append(sums.pop(each))
    return tuple(parsed)


def _workloads(problem: str | type) -> tuple[Workload, ...]:
    """Return the workloads of a text, or the cases of a class that describes a Triton kernel."""
    if isinstance(problem, str):
        return expand_workloads(problem)
    file = getattr(sys.modules.get(problem.__module__), "__file__", None)
    if file is None:
        raise UsageError(f"class {problem.__qualname__} is in no file, which builders read it from: put it into one")
    return expand_workloads(f"triton:{file}:{problem.__qualname__}")
