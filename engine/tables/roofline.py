"""Speeds of a table's rows and the roofs above them, as data."""

from collections.abc import Sequence
from dataclasses import dataclass

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import GemmtuneError
from gemmtune.engine.records.table import Table
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams import registry

_ROOM = 1.6
"""Factor between the outermost point or corner and the edge of the picture."""
_Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed of a kernel, with what the data sheet allows it."""

    compute_type: str
    """Type that the kernel computes in; empty where the workload names none."""
    intensity: float
    """Operations per byte, each operand moved once; 0 where the operations are unknown."""
    tflop_s: float | None
    """10¹² operations per second; None where the operations are unknown."""
    gb_s: float
    """10⁹ bytes per second, each operand moved once."""
    bound: str
    """Roof above the kernel, `memory` or `compute`; empty where no peak is known."""
    roof_tflop_s: float | None
    """Height of that roof in TFLOP/s; None where no peak is known."""

    @property
    def fraction_of_peak(self) -> float | None:
        """Speed over the roof, which is the peak rate or the bandwidth; None where no peak is known."""
        return None if self.roof_tflop_s is None or self.tflop_s is None else self.tflop_s / self.roof_tflop_s


@dataclass(frozen=True, slots=True)
class Roof:
    """Line that no kernel exceeds."""

    name: str
    """Name of the line: `memory`, or the compute types that share the peak rate."""
    limit: float
    """Bandwidth in GB/s, or peak rate in TFLOP/s."""
    ends: tuple[_Point, _Point]
    """Both ends of the line: operations per byte, and TFLOP/s."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Picture of speeds beneath their roofs."""

    roofs: tuple[Roof, ...]
    """Roof of the memory, then one per peak rate, the lowest first."""
    unknown: tuple[str, ...]
    """Compute types without a known peak, sorted; an empty text for a workload that names none."""
    x: _Point
    """Least and largest operations per byte of the picture."""
    y: _Point
    """Least and largest TFLOP/s of the picture."""


def speed(device: Device, problem: Workload, time_ns: float) -> Speed | None:
    """Return the speed of a kernel that takes `time_ns`; None for a workload without bytes."""
    if not problem.min_bytes:
        return None
    gb_s = problem.min_bytes / time_ns
    if not problem.flops:
        return Speed(problem.compute_type, 0.0, None, gb_s, "", None)
    intensity, peak = problem.flops / problem.min_bytes, device.peak_tflops(problem.compute_type)
    fed = intensity * device.memory_bandwidth_gb_s * 1e-3
    bound = "" if peak is None else "memory" if fed < peak else "compute"
    roof = None if peak is None else min(fed, peak)
    return Speed(problem.compute_type, intensity, problem.flops / time_ns * 1e-3, gb_s, bound, roof)


def speeds(table: Table) -> list[Speed | None]:
    """Return the speed of each row's first choice; None for every row where the objective is no time."""
    try:
        timed = registry.objective(table.objective).unit == "ns"
    except GemmtuneError:  # a plug-in that is not installed here
        timed = False
    return [speed(table.device, row.problem, row.choices[0].time_ns) if timed else None for row in table.rows]


def speed_columns(table: Table) -> dict[str, list[str]]:
    """Return columns of speeds, with a dash for a speed or a peak that is not known; none where no row has a speed."""
    found = speeds(table)
    if not any(found):
        return {}
    shares = [each.fraction_of_peak if each else None for each in found]
    return {
        "TFLOP/s": [f"{each.tflop_s:.1f}" if each and each.tflop_s else "-" for each in found],
        "GB/s": [f"{each.gb_s:.0f}" if each else "-" for each in found],
        "% of peak": ["-" if share is None else f"{share:.0%}" for share in shares],
    }


def roofline(device: Device, found: Sequence[Speed]) -> Roofline:
    """Return the roofs above speeds of known operations, with limits that hold every point and every roof."""
    types = sorted({each.compute_type for each in found})
    peaks = {name: peak for name in types if (peak := device.peak_tflops(name)) is not None}
    slope = device.memory_bandwidth_gb_s * 1e-3
    ridges = [peak / slope for peak in peaks.values()]
    xs, ys = [each.intensity for each in found], [each.tflop_s or 0.0 for each in found]
    left, right = min(*xs, *ridges, xs[0]) / _ROOM, max(*xs, *ridges, xs[0]) * _ROOM
    end = max(ridges) if len(peaks) == len(types) else right
    roofs = [Roof("memory", device.memory_bandwidth_gb_s, ((left, left * slope), (end, end * slope)))]
    for peak in sorted(set(peaks.values())):
        names = ", ".join(name for name in peaks if peaks[name] == peak)
        roofs.append(Roof(names, peak, ((peak / slope, peak), (right, peak))))
    ys += [y for roof in roofs for _, y in roof.ends]
    unknown = tuple(name for name in types if name not in peaks)
    return Roofline(tuple(roofs), unknown, (left, right), (min(ys) / _ROOM, max(ys) * _ROOM))
