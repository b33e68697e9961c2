"""Conformance checks for kinds of workloads: texts and fields, sizes, and operands with their right results."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import is_dataclass, replace

from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.kinds import fields_of, kind_of, parse_workload, workload_of
from gemmtune.engine.testing._contract import require


def check_workload(workload: Workload) -> None:
    """Check a workload's record and the texts of its registered kind, without torch.

    Example:
        >>> import gemmtune as gt
        >>> check_workload(gt.Problem.parse("16x4096x4096:bf16:nt"))

    Raises:
        ContractError: the record or its kind broke the contract; the message says how.
    """
    for check in CHECKS:
        check(workload)


def is_a_frozen_record(workload: Workload) -> None:
    """Check that it is a hashable dataclass that survives pickling, and whose weight is not compared."""
    kind = type(workload)
    require(is_dataclass(workload), kind, "is no dataclass")
    require(pickle.loads(pickle.dumps(workload)) == workload, kind, "differs after pickling")  # noqa: S301 (our own bytes)
    heavier = replace(workload, weight=workload.weight + 1)  # type: ignore[type-var] # it is a dataclass
    require(heavier == workload and hash(heavier) == hash(workload), kind, "compares its weight")
    require(heavier.weight == workload.weight + 1, kind, "keeps its weight")


def is_named_for_its_kind(workload: Workload) -> None:
    """Check that the name is one word that its kind reads back, and begins with the kind unless that is `gemm`."""
    kind, name = type(workload), workload.name
    require(not set(" /\n\t") & set(name), kind, f"has a space or a slash in its name {name!r}")
    require(
        workload.kind == "gemm" or name.startswith(f"{workload.kind}:"), kind, f"is named {name!r} without its kind"
    )
    require(parse_workload(name) == workload, kind, f"reads {name!r} as another workload")
    require(kind_of(workload.kind).expand(name) == (workload,), kind, f"expands {name!r} to others")


def keeps_its_fields(workload: Workload) -> None:
    """Check that fields are texts that give the workload back, and that an unknown field is refused by its name."""
    kind, fields = type(workload), fields_of(workload)
    require(all(isinstance(part, str) for item in fields.items() for part in item), kind, "has a field that is no text")
    require(workload_of(fields) == workload, kind, f"is another workload after its fields {fields}")
    try:
        workload_of({**fields, "no_such_field": "1"})
    except ProblemError as error:
        require("no_such_field" in str(error), kind, f"refuses an unknown field without naming it: {error}")
    else:
        require(False, kind, "takes a field that it does not know")


def has_sizes_and_amounts(workload: Workload) -> None:
    """Check sizes, traits, operations and bytes, and that the family has every size 1."""
    kind = type(workload)
    require(
        all(type(size) is int and size > 0 for size in workload.sizes.values()), kind, f"has sizes {workload.sizes}"
    )
    require(all(isinstance(each, float) for each in workload.traits.values()), kind, f"has traits {workload.traits}")
    require(workload.flops >= 0 and workload.min_bytes >= 0, kind, "has operations or bytes below 0")
    family = workload.family
    require(set(family.sizes.values()) <= {1}, kind, f"has a family with the sizes {family.sizes}")
    require(family.family == family and family.weight == 1, kind, "has a family that is not of its own family")


def spans_its_range_size(workload: Workload) -> None:
    """Check that another range size changes it, and sizes equal to it, alone, and that the series does not have it."""
    kind, name = type(workload), workload.range_size
    if not name:
        require(
            workload.series == workload and workload.size == 1, kind, "has no range size, and is not its own series"
        )
        return
    require(workload.sizes.get(name) == workload.size, kind, f"has no size {name}, which ranges span")
    other = workload.resized(workload.size + 1, 3.0)
    changed = {each for each, size in other.sizes.items() if size != workload.sizes[each]}
    grown = name in changed and all(other.sizes[each] == workload.size + 1 for each in changed)
    require(grown and other.size == workload.size + 1, kind, f"changes {sorted(changed)} with the range size")
    require(other.weight == 3 and other.series == workload.series, kind, "has another series at another size")
    require(workload.series.size == 1, kind, "has a series whose size is not 1")


CHECKS: tuple[Callable[[Workload], None], ...] = (
    is_a_frozen_record,
    is_named_for_its_kind,
    keeps_its_fields,
    has_sizes_and_amounts,
    spans_its_range_size,
)
"""Checks that `check_workload` runs, in order."""


def check_operands(workload: Workload) -> None:
    """Check operands and right results on the CPU; choose small sizes, and have torch installed.

    Raises:
        ContractError: the kind broke its contract; the message says how.
    """
    import torch

    from gemmtune.engine.measure.operands.operands import make_operands, tensors_of
    from gemmtune.engine.measure.operands.reference import ReferenceResult, poison

    kind, device = type(workload), torch.device("cpu")
    first, again, other = (make_operands(workload, device, number) for number in (0, 0, 1))
    outputs = {out.data_ptr() for out in first.outputs}
    require(bool(outputs), kind, "has no output")
    require(outputs <= {each.data_ptr() for each in tensors_of(first)}, kind, "has an output that is no argument")
    inputs = [
        [each for each in tensors_of(one) if each.data_ptr() not in {its.data_ptr() for its in one.outputs}]
        for one in (first, again)
    ]
    equal = all(bool((one.float() == other.float()).all()) for one, other in zip(*inputs, strict=False))
    require(equal, kind, "has other values in one operand set made twice")
    apart = {each.data_ptr() for each in tensors_of(first)} & {each.data_ptr() for each in tensors_of(other)}
    require(not apart, kind, "shares memory between operand sets")
    reference = ReferenceResult(workload, first)
    for out, expected in zip(first.outputs, kind_of(workload.kind).expected(workload, first), strict=True):
        require(out.shape == expected.values.shape, kind, "expects another shape than its output has")
        out.copy_(expected.values)
    check = reference.check(*first.outputs)
    require(not check.reason, kind, f"refuses its own results: {check.reason}")
    for out in first.outputs:
        poison(out)
        require(bool(reference.check(*first.outputs).reason), kind, "takes an unwritten output")
    beside = kind_of(workload.kind).timed_beside(workload)
    require(beside.kind == "gemm", kind, f"is timed beside {beside.name}, which is no GEMM")
