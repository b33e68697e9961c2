"""Least time of a model's kernels on a GPU, and the share of it that each has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from gemmtune.engine.records.device import Device


class Kind(Enum):
    """Kind of a part of a model."""

    PRODUCT = "product"
    """Product of two matrices, or of batches of them."""
    ATTENTION = "attention"
    """Kernel that computes attention as a whole."""
    LIBRARY = "other kernel"
    """Kernel of a library or a user, such as a convolution."""
    REST = "everything else"
    """Kernels that Inductor writes: norms, activations, copies, embeddings."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Work of one launch, of which each operand is moved once."""

    flops: float | None
    """Arithmetic operations; None where nobody knows them, as of a user's kernel."""
    bytes: float
    """Bytes read and written in device memory."""
    compute_type: str = ""
    """Type that the kernel computes in, as `Device.peaks` names it; empty for a kernel that only moves bytes."""


@dataclass(frozen=True, slots=True)
class Work:
    """Kernels of a model that are listed as one part."""

    name: str
    """Name of the problem, or of the operation."""
    kind: Kind
    """Kind of the kernels."""
    runs: Mapping[Cost, float]
    """Runs per call of the model, by what a launch costs."""
    reason: str = ""
    """Reason why no row of a table can serve them; empty where one can."""


@dataclass(frozen=True, slots=True)
class Part:
    """Part of a model, and its share of the least time."""

    name: str
    """Name of the problem, or of the operation."""
    kind: Kind
    """Kind of the kernels."""
    runs: float
    """Launches per call of the model."""
    flops: float | None
    """Operations of all runs; None where nobody knows them."""
    bytes: float
    """Bytes of all runs."""
    floor_ns: float
    """Least time of all runs: of each, the longer of its flops at the peak rate and its bytes at the bandwidth."""
    share: float
    """Fraction of the model's least time."""
    reason: str
    """Reason why no row of a table can serve the part; empty where one can."""


@dataclass(frozen=True, slots=True)
class Floor:
    """Least time of a call of a model, by part."""

    device: Device
    """GPU whose rates are taken."""
    parts: Sequence[Part]
    """Parts, the largest share first."""
    total_ns: float
    """Least time of a call, with launches one after the other."""
    unknown: Sequence[str]
    """Names of all that is missing from the time; empty where all is known."""

    @property
    def servable(self) -> float:
        """Fraction of the least time that rows of a table can serve."""
        return sum(part.share for part in self.parts if not part.reason)

    @property
    def by_kind(self) -> Mapping[Kind, float]:
        """Fraction of the least time by kind."""
        return {kind: sum(part.share for part in self.parts if part.kind is kind) for kind in Kind}


def floor_of(works: Iterable[Work], device: Device) -> Floor:
    """Return the least time of a model's kernels at the peak rates of a device's data sheet."""
    listed = [(work, sum(runs * _floor_ns(cost, device) for cost, runs in work.runs.items())) for work in works]
    total = sum(floor for _, floor in listed)
    parts = [_part(work, floor, total) for work, floor in listed]
    parts.sort(key=lambda part: (-part.floor_ns, part.name))
    costs = [(work, cost) for work, _ in listed for cost in work.runs]
    types = dict.fromkeys(cost.compute_type for _, cost in costs if cost.flops and _peak(cost, device) is None)
    names = dict.fromkeys(work.name for work, cost in costs if cost.flops is None)
    unknown = [f"the peak rate of {device.name} in {name or 'an unnamed type'}" for name in types]
    return Floor(device, parts, total, [*unknown, *(f"the flops of {name}" for name in names)])


def _part(work: Work, floor_ns: float, total_ns: float) -> Part:
    flops = [None if cost.flops is None else cost.flops * runs for cost, runs in work.runs.items()]
    known = [each for each in flops if each is not None]
    return Part(
        work.name,
        work.kind,
        sum(work.runs.values()),
        sum(known) if len(known) == len(flops) else None,
        sum(cost.bytes * runs for cost, runs in work.runs.items()),
        floor_ns,
        floor_ns / total_ns if total_ns else 0.0,
        work.reason,
    )


def _peak(cost: Cost, device: Device) -> float | None:
    return device.peak_tflops(cost.compute_type)


def _floor_ns(cost: Cost, device: Device) -> float:
    """Return the least time of a launch in ns; without a known rate, that of its bytes."""
    peak = _peak(cost, device)
    computing = cost.flops / peak / 1e3 if cost.flops and peak else 0.0
    return max(computing, cost.bytes / device.memory_bandwidth_gb_s)
