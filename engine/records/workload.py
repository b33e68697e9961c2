"""Workloads: one thing to tune, whatever its kernel computes."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, Self, TypeVar

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ProblemError, did_you_mean

OUTPUT_SIZES = ("m", "n")
"""Names of the two sizes of an output matrix, in workloads that have one to cut into tiles."""
_SHOWN = 200  # characters of a wrong text in a message
_STEP = 4  # ratio of neighbouring sizes that stand for a range
_APART = 2  # least ratio of such a size to both ends
_MOST_SIZE = 2**31 - 1  # of a problem
_NO_END = 8192  # largest size that stands for a range without an end
_W = TypeVar("_W", bound="Workload")


class Workload(ABC):
    """Work of one kernel launch: its sizes, types and everything else that a kernel can tell apart.

    A workload is data: a frozen dataclass, hashable, picklable, and without torch. Two workloads are equal if a kernel
    cannot tell them apart, so their weights are not compared. The plug-in of its kind (`seams.workload.WorkloadKind`)
    makes its operands and the result that a right kernel gives.

    A GEMM (`records.gemm.problem.Problem`) is one kind. `testing.check_workload` holds a kind to this contract.
    """

    __slots__ = ()

    kind: ClassVar[str]
    """Name of the workload's kind, as registered under the entry points `gemmtune.workloads`: `gemm`."""

    baseline_space: ClassVar[str]
    """Name of the space whose only config is the kernel that production runs untuned, measured for every workload."""

    baseline_words: ClassVar[str] = "the baseline"
    """Words for that kernel in a sentence of a report."""

    searched_space: ClassVar[str]
    """Name of the space that is searched where the user names none."""

    compared_spaces: ClassVar[tuple[str, ...]] = ()
    """Names of spaces that are searched beside it, for kernels that a program may call instead."""

    weight: float
    """Call frequency in the user's program, relative to the other workloads; above 0."""

    @property
    def untuned_config(self) -> Config | None:
        """Config that runs untuned, where the workload says it; None where the baseline's space alone knows."""
        return None

    @property
    @abstractmethod
    def name(self) -> str:
        """Canonical text, equal for equal workloads alone, which the kind's `parse` reads.

        The text of every kind but `gemm` begins with the kind and a colon. It has no space and no slash.
        """

    @property
    @abstractmethod
    def flops(self) -> int:
        """Number of arithmetic operations of one launch; 0 where it is unknown."""

    @property
    @abstractmethod
    def min_bytes(self) -> int:
        """Bytes that one launch must move; a faster time than memory takes for what the L2 cannot keep is refused."""

    @property
    def compute_type(self) -> str:
        """Type that the kernel computes in, as `Device.peaks` names it; by default none, and no peak rate is known."""
        return ""

    @property
    @abstractmethod
    def sizes(self) -> Mapping[str, int]:
        """Sizes by name, each at least 1, in a fixed order; samplers compare workloads by their logarithms."""

    @property
    def traits(self) -> Mapping[str, float]:
        """Further numbers that samplers compare workloads by, such as element sizes; by default none."""
        return {}

    def to_fields(self) -> Mapping[str, str]:
        """Return every compared field as text, which the kind's `from_fields` reads; stored in databases and files."""
        every: Any = fields(self)  # type: ignore[arg-type] # a dataclass
        return {each.name: str(getattr(self, each.name)) for each in every if each.compare}

    @property
    def learns_from(self) -> str:
        """Key that is equal for workloads whose measurements inform each other's search; by default the kind."""
        return self.kind

    @property
    def described_by(self) -> tuple[str, str]:
        """User's code that describes the workload, and a hash of its text; both empty where no such code does.

        Tuning workloads of the code as it is now drops the rows of its other hashes from a table.
        """
        return "", ""

    @property
    def range_size(self) -> str:
        """Name of the size that a range of a row spans, such as m or tokens; by default none, and no range is built."""
        return ""

    @property
    def takes_size_at_launch(self) -> bool:
        """Whether a kernel takes the range size at launch, so that one binary serves every such size."""
        return False

    @property
    def size(self) -> int:
        """Value of the range size; 1 without one."""
        return self.sizes[self.range_size] if self.range_size else 1

    @abstractmethod
    def resized(self, size: int, weight: float | None = None) -> Self:
        """Return the workload with another range size, and another weight unless it is None.

        Raises:
            ProblemError: the size is out of bounds, or the workload has no range size.
        """

    @property
    def series(self) -> Self:
        """Workload at range size 1 with weight 1: equal for workloads that differ in these alone."""
        return self.resized(1, 1.0) if self.range_size else self

    @property
    def bits_series(self) -> Self:
        """Workload that is equal for those whose equal rows should get equal bits; by default the series."""
        return self.series

    @property
    def series_name(self) -> str:
        """Name with the range size's name in place of its value, for people."""
        return self.name.replace(f"{self.range_size}={self.size}", self.range_size)

    @property
    @abstractmethod
    def family(self) -> Self:
        """Workload with every size and the weight 1: workloads of one family can share a compiled kernel."""


def refuse_sizes(workload: Workload, most: int, **bounds: int) -> None:
    """Refuse a size that is no integer from 1 to `most`, or to its own bound, and a weight that is none.

    Raises:
        ProblemError: the message names the size or the weight with its bounds.
    """
    for name, value in workload.sizes.items():
        if not isinstance(value, int) or not 1 <= value <= bounds.get(name, most):
            raise ProblemError(f"{name}={value} is not an integer from 1 to {bounds.get(name, most)}")
    if not 0 < workload.weight < math.inf:
        raise ProblemError(f"weight={workload.weight} is not a number above 0")


def refuse_unknown(kind: Any, record: Mapping[str, str]) -> None:  # noqa: ANN401 (a dataclass)
    """Raise a ProblemError for a field that a class of workloads lacks, or for one of `refuse_foreign`."""
    known = {each.name for each in fields(kind)}
    refuse_foreign(record)
    if unknown := sorted(set(record) - known):
        meant = did_you_mean(unknown[0], known)
        raise ProblemError(f"unknown field {unknown[0][:_SHOWN]!r}; {meant}known: {', '.join(sorted(known))}")


def refuse_foreign(record: Mapping[str, str]) -> None:
    """Raise a ProblemError for a text field with other characters than ASCII, such as digits of other scripts."""
    if foreign := [name for name, text in record.items() if not f"{name}{text}".isascii()]:
        text = record[foreign[0]][:_SHOWN]
        raise ProblemError(f"{foreign[0][:_SHOWN]}={text!r} has characters outside of ASCII: write digits 0 to 9")


def spanning(first: int, last: int | None, step: int = 1) -> tuple[int, ...]:
    """Return a few multiples of `step` that span a range of sizes, ascending.

    None for `last` is no end, and so is more than a problem can have.
    """
    last = max(first, _NO_END) if last is None or last > _MOST_SIZE else last
    powers = (size for e in range(32) if _APART * first <= (size := _STEP**e) <= last / _APART)
    fitted = {max(step, size // step * step) for size in (first, *powers, last)}
    return tuple(sorted(size for size in fitted if first <= size <= last))


def summed(workloads: Iterable[_W]) -> tuple[_W, ...]:
    """Return each workload once, where it first stands; the weights of equal ones add up."""
    found: dict[_W, _W] = {}
    for each in workloads:
        before = found.get(each)
        found[each] = each if before is None else replace(before, weight=before.weight + each.weight)  # type: ignore[type-var] # a dataclass
    return tuple(found.values())


def baseline_name(workloads: Iterable[Workload]) -> str:
    """Return the name of the space that all these workloads have as baseline; `baseline` if they differ."""
    names = {workload.baseline_space for workload in workloads}
    return names.pop() if len(names) == 1 else "baseline"


def baseline_words(workloads: Iterable[Workload]) -> str:
    """Return the words that all these workloads have for their baseline; `the baseline` if they differ."""
    words = {workload.baseline_words for workload in workloads}
    return words.pop() if len(words) == 1 else Workload.baseline_words
