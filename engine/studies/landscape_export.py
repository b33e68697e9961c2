"""Turn the measurements of a swept space into a landscape."""

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
    """Return the landscape of one task, its points in the given order, without the configs that were not measured."""
    points = {
        m.config: Point(
            config=m.config,
            status=m.status,
            time_ns=m.estimate.time_ns if m.estimate else None,
            samples_ns=m.samples_ns,
            reason=m.reason,
            resources=m.resources,
            build_seconds=m.build_seconds,
        )
        for m in (measurements[config] for config in order if config in measurements)
    }
    first = next(iter(measurements.values()))
    return Landscape(
        name=task.problem.name,
        source="",
        params=space.params(task),
        points=points,
        problem=task.problem,
        context={
            "space": task.space,
            "device": task.device.sku,
            "protocol": first.protocol,
            "toolchain": first.toolchain.text,
            "date": min(m.created_at for m in measurements.values())[:10],
        },
    )
