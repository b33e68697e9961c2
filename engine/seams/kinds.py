"""Read and write workloads of every kind, by the plug-in of their kind."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import NoReturn

from gemmtune.engine.records.errors import ProblemError, UsageError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import Space
from gemmtune.engine.seams.workload import WorkloadKind

GEMM_BASELINE = Problem.baseline_space
"""Space of the baseline of the shipped landscapes, which hold GEMMs."""

_GEMM = Problem.kind  # kind of texts and fields that name none
_FIELD = "kind"  # field of a stored workload that names its kind


@cache
def kind_of(name: str) -> WorkloadKind[Workload]:
    """Return the plug-in of a kind of workload; a look-up in the registry takes milliseconds.

    Raises:
        UnknownPlugin: no kind has that name; the message lists the known ones.
    """
    return registry.workload(name)


def parse_workload(text: str) -> Workload:
    """Return the workload of a text that begins with a kind and a colon, or else that of a GEMM.

    Raises:
        ProblemError: the text is malformed.
    """
    return _kind_in(text).parse(text)


def expand_workloads(text: str) -> tuple[Workload, ...]:
    """Return every workload that a text stands for, such as all cases of a kernel; raises like `parse_workload`."""
    return _kind_in(text).expand(text)


def measured_as(workload: Workload) -> tuple[Workload, ...]:
    """Return a workload, then each that a campaign may measure and name in its place: with another untuned config."""
    with suppress(ProblemError):  # the user's file is not read here, or was edited: the workload alone
        return tuple(dict.fromkeys((workload, *kind_of(workload.kind).untuned(workload))))
    return (workload,)


def require_kinds(spaces: Mapping[str, Space], workloads: Iterable[Workload]) -> None:
    """Refuse a workload that no space takes, and a space that takes none of them.

    Raises:
        UsageError: a space and a workload are of two kinds.
    """
    named = list(workloads)
    for name, space in spaces.items():
        if named and all(space.workload != each.kind for each in named):
            _refuse({name: space}, named[0])
    for each in named:
        if all(space.workload != each.kind for space in spaces.values()):
            _refuse(spaces, each)


def _refuse(spaces: Mapping[str, Space], workload: Workload) -> NoReturn:
    kinds = dict.fromkeys(space.workload for space in spaces.values())
    takes = " and ".join(
        "GEMMs (MxNxK)" if kind == _GEMM else f"problems of kind {kind} ({kind}:...)" for kind in kinds
    )
    subject = f"space {next(iter(spaces))} takes" if len(spaces) == 1 else f"spaces {' and '.join(spaces)} take"
    other = "a GEMM" if workload.kind == _GEMM else f"of kind {workload.kind}"
    way_out = f"name the space {workload.searched_space}, or another problem"
    raise UsageError(f"{subject} {takes}, and {workload.name} is {other}: {way_out}")


def _kind_in(text: str) -> WorkloadKind[Workload]:
    kind = text.strip().partition(":")[0]
    return kind_of(kind if kind in registry.names(WorkloadKind) else _GEMM)


def fields_of(workload: Workload) -> dict[str, str]:
    """Return what `workload_of` reads: the workload's fields, and the kind unless it is a GEMM."""
    kind = {} if workload.kind == _GEMM else {_FIELD: workload.kind}
    return {**kind, **workload.to_fields()}


def workload_of(fields: Mapping[str, str]) -> Workload:
    """Return the workload of text fields; without a field `kind` they are those of a GEMM.

    Raises:
        ProblemError: a field is unknown, missing or malformed.
        UnknownPlugin: no kind has that name; the message lists the known ones.
    """
    rest = {name: text for name, text in fields.items() if name != _FIELD}
    return kind_of(fields.get(_FIELD) or _GEMM).from_fields(rest)
