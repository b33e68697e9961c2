"""A swept space as a landscape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import Space

__all__ = ["landscape_from"]


def landscape_from(
    task: Task, space: Space, order: Iterable[Config], measurements: Mapping[Config, Measurement]
) -> Landscape:
    """The landscape of one task, its points in the given order; configs without a measurement are left out."""
    points = {config: _point(measurements[config]) for config in order if config in measurements}
    some = next(iter(measurements.values()))
    return Landscape(
        name=task.problem.name,
        source="",
        params=space.params(task),
        points=points,
        problem=task.problem,
        context={
            "space": task.space,
            "device": task.device.sku,
            "protocol": some.protocol,
            "toolchain": some.toolchain.text,
            "date": min(m.created_at for m in measurements.values())[:10],
        },
    )


def _point(measurement: Measurement) -> Point:
    return Point(
        config=measurement.config,
        status=measurement.status,
        time_ns=measurement.estimate.time_ns if measurement.estimate else None,
        samples_ns=measurement.samples_ns,
        reason=measurement.reason,
        resources=measurement.resources,
        build_seconds=measurement.build_seconds,
    )
