"""Plans from files and from keyword arguments."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from textwrap import fill
from typing import Any, TypeVar, Unpack, get_type_hints

from gemmtune.engine.campaign import plan_file
from gemmtune.engine.campaign.plan import OPTIONS, Plan, PlanOptions, ProblemLike
from gemmtune.engine.consumers.inductor.capture.recorded import RECORD_SUFFIXES, recorded_plan
from gemmtune.engine.io.options import Option, Value, show_options
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.kinds import expand_workloads

_F = TypeVar("_F", bound=Callable[..., object])


def read_plan(path: Path) -> Plan:
    """Read a campaign file, or the products that a program recorded.

    Raises:
        UsageError: the file is missing or malformed, has an unknown key, or a value of the wrong kind or out of bounds.
    """
    return plan_file.read_plan(path, dict.fromkeys(RECORD_SUFFIXES, recorded_plan))


def plan_with(plan: Plan, problems: ProblemLike | Iterable[ProblemLike], **options: Unpack[PlanOptions]) -> Plan:
    """Return a plan with further problems and other options; None and empty leave those that it has.

    A problem that is in both keeps the weight of the plan's. Without a named space, those of the problems are searched.

    Raises:
        UsageError: a value is out of bounds, or names nothing.
    """
    given = {each.field: _value(plan, each, options.get(name)) for name, each in OPTIONS.items()}
    added = tuple(each for each in parse_problems(problems) if each not in plan.problems)
    given["problems"] = (*plan.problems, *added)
    if not given["spaces"] and plan.spaces == Plan().spaces:
        given["spaces"] = tuple(dict.fromkeys(each.searched_space for each in given["problems"]))
    return plan.changed(**{name: value for name, value in given.items() if value not in (None, ())})


def _value(plan: Plan, option: Option, value: Any) -> Any:  # noqa: ANN401 (of the option's kind)
    """Return the value of an option's field; None and empty for one that is not given."""
    match option.value:
        case Value.NAMES:
            return (value,) if isinstance(value, str) else tuple(value or ())
        case Value.PROBLEMS:
            return parse_problems(value or ())
        case Value.LIMITS:
            return (getattr(plan, option.field) or option.of()) if value is True else value or None
    return value


def takes_options(function: _F) -> _F:
    """Show what `**options` stands for in a function's signature and docstring."""
    types = get_type_hints(PlanOptions)
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

    Raises:
        ProblemError: a text is malformed or a size is out of bounds.
    """
    those = (problems,) if isinstance(problems, str | Workload | type) else problems
    return tuple(workload for each in those for workload in _workloads(each))


def _workloads(problem: ProblemLike) -> tuple[Workload, ...]:
    """Return the workload, those of a text, or the cases of a class that describes a Triton kernel."""
    if isinstance(problem, Workload):
        return (problem,)
    if isinstance(problem, str):
        return expand_workloads(problem)
    file = getattr(sys.modules.get(problem.__module__), "__file__", None)
    if file is None:
        raise UsageError(f"class {problem.__qualname__} is in no file, which builders read it from: put it into one")
    return expand_workloads(f"triton:{file}:{problem.__qualname__}")
