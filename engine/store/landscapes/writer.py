"""Landscapes into the CSV text that `landscape_file` describes."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from gemmtune.engine.records.errors import LandscapeError
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.store.landscapes.cells import (
    BUILD_SECONDS,
    COST_SECONDS,
    IDENTITY,
    RESOURCES,
    is_param,
    status_text,
    time_text,
    value_text,
)

__all__ = ["render"]


def render(file: Path, landscapes: Sequence[Landscape]) -> str:
    """All landscapes under one header; `file` names them in errors.

    Raises:
        LandscapeError: there is nothing to write, or it would not read back equal.
    """
    tasks = [(landscape, _task_cells(file, landscape)) for landscape in landscapes]
    params = list(dict.fromkeys(param.name for landscape in landscapes for param in landscape.params))
    columns = _columns(landscapes, [cells for _, cells in tasks], params)
    for name in params:
        if not is_param(name) or name != name.strip() or not name:
            raise LandscapeError(f"cannot write {file}: parameter {name!r} would not read back as one; rename it")
    if not params and "task.space" not in columns:
        raise LandscapeError(f"cannot write {file}: landscapes without parameters must name their space")
    seen = set()
    for landscape, cells in tasks:
        if not landscape.points:
            raise LandscapeError(f"cannot write {file}: the landscape of {landscape.name} holds no point")
        identity = tuple(cells.get(c, "") for c in columns if c.startswith("problem.") or c in IDENTITY)
        if identity in seen:
            raise LandscapeError(f"cannot write {file}: two landscapes of {landscape.name} on one device in one space")
        seen.add(identity)
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for landscape, cells in tasks:
        writer.writerows(cells | _point_cells(file, landscape, point) for point in landscape.points.values())
    return out.getvalue()


def _columns(landscapes: Sequence[Landscape], tasks: Sequence[dict[str, str]], params: Sequence[str]) -> list[str]:
    points = [point for landscape in landscapes for point in landscape.points.values()]
    of_tasks = dict.fromkeys(column for cells in tasks for column in cells)
    columns = [*(c for c in of_tasks if c.startswith("problem.")), *(c for c in of_tasks if c.startswith("task."))]
    columns += [*params, "time_us"]
    if any(point.samples_ns for point in points):
        columns.append("times_us")
    columns.append("status")
    if any(point.resources for point in points):
        columns += RESOURCES
    if any(point.build_seconds is not None for point in points):
        columns.append(BUILD_SECONDS)
    if any(point.cost_seconds is not None for point in points):
        columns.append(COST_SECONDS)
    return columns


def _task_cells(file: Path, landscape: Landscape) -> dict[str, str]:
    texts: dict[str, str] = {}
    if landscape.problem is not None:
        texts = landscape.problem.to_fields()
    elif "=" in landscape.name:
        for part in landscape.name.split(","):
            name, _, text = part.partition("=")
            if not name or not text:
                raise LandscapeError(f"cannot write {file}: the name {landscape.name!r} is not field=value,...")
            texts[name] = text
    cells = {f"problem.{name}": text for name, text in texts.items()}
    return cells | {f"task.{name}": text for name, text in landscape.context.items()}


def _point_cells(file: Path, landscape: Landscape, point: Point) -> dict[str, str]:
    if set(point.config) != {param.name for param in landscape.params}:
        raise LandscapeError(f"cannot write {file}: {point.config} does not have the params of {landscape.name}")
    if (point.time_ns is None) is (point.status is Status.OK):
        raise LandscapeError(f"cannot write {file}: {point.config} is {point.status} with time {point.time_ns}")
    cells = {"status": status_text(point.status, point.reason)}
    for name, value in point.config.items():
        try:
            cells[name] = value_text(value)
        except ValueError as error:
            raise LandscapeError(f"cannot write {file}: parameter {name}={error}") from None
    if point.time_ns is not None:
        cells["time_us"] = time_text(point.time_ns)
        if point.samples_ns:
            cells["times_us"] = ";".join(map(time_text, point.samples_ns))
    if point.resources is not None:
        cells |= {column: str(getattr(point.resources, field)) for column, field in RESOURCES.items()}
    if point.build_seconds is not None:
        cells[BUILD_SECONDS] = repr(point.build_seconds)
    if point.cost_seconds is not None:
        cells[COST_SECONDS] = repr(point.cost_seconds)
    return cells
