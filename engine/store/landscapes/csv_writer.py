"""Write landscapes as CSV text; `landscape_file` explains the columns."""

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path

from gemmtune.engine.records.errors import LandscapeError
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.seams.kinds import fields_of
from gemmtune.engine.store.landscapes.csv_cells import BUILD_SECONDS, COST_SECONDS, RESOURCES
from gemmtune.engine.store.landscapes.csv_reader import parse

_OPTIONAL = (*RESOURCES, BUILD_SECONDS, COST_SECONDS)


def render(file: Path, landscapes: Sequence[Landscape]) -> str:
    """Return all landscapes under one header; `file` names them in errors.

    Raises:
        LandscapeError: there is nothing to write, or the text would not read back equal.
    """
    rows = [_cells(landscape, point) for landscape in landscapes for point in landscape.points.values()]
    filled = dict.fromkeys(column for row in rows for column in row)
    columns = [column for column in filled if column.startswith("problem.")]
    columns += [column for column in filled if column.startswith("task.")]
    columns += dict.fromkeys(param.name for landscape in landscapes for param in landscape.params)
    columns += ["time_us", "times_us", "status"] if "times_us" in filled else ["time_us", "status"]
    columns += [column for column in _OPTIONAL if column in filled]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    _check_reads_back(file, out.getvalue(), landscapes)
    return out.getvalue()


def _cells(landscape: Landscape, point: Point) -> dict[str, str]:
    fields: dict[str, str] = {}
    if landscape.problem is not None:
        fields = fields_of(landscape.problem)
    elif "=" in landscape.name:
        fields = dict(part.partition("=")[::2] for part in landscape.name.split(","))
    cells = {f"problem.{name}": text for name, text in fields.items()}
    cells |= {f"task.{name}": text for name, text in landscape.context.items()}
    cells |= {name: str(v).lower() if isinstance(v, bool) else str(v) for name, v in point.config.items()}
    cells["status"] = f"{point.status}: {_one_line(point.reason)}" if point.reason else str(point.status)
    if point.time_ns is not None:
        cells["time_us"] = _microseconds(point.time_ns)
    if point.samples_ns:
        cells["times_us"] = ";".join(map(_microseconds, point.samples_ns))
    if point.resources is not None:
        cells |= {column: str(getattr(point.resources, field)) for column, field in RESOURCES.items()}
    if point.build_seconds is not None:
        cells[BUILD_SECONDS] = repr(point.build_seconds)
    if point.cost_seconds is not None:
        cells[COST_SECONDS] = repr(point.cost_seconds)
    return cells


def _microseconds(nanoseconds: float) -> str:
    """Return the time in microseconds, with every digit and no exponent."""
    return format(Decimal(repr(nanoseconds)).scaleb(-3).normalize(), "f")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _check_reads_back(file: Path, text: str, landscapes: Sequence[Landscape]) -> None:
    """Raise LandscapeError unless the text reads back as the landscapes, with each reason on one line."""
    try:
        found = parse(file, [text])
    except LandscapeError as error:
        raise LandscapeError(f"cannot write what would not read back: {error}") from None
    if len(found) != len(landscapes):
        need = "each needs a point, and a problem, space or device of its own"
        raise LandscapeError(f"cannot write {file}: {len(landscapes)} tasks would read back as {len(found)}; {need}")
    for written, back in zip(landscapes, found, strict=True):
        for point, other in zip_longest(written.points.values(), back.points.values()):
            if point is None or other is None or point.config != other.config:
                configs = f"{point and point.config} would read back as {other and other.config}"
                raise LandscapeError(f"cannot write {file}: in {written.name}, {configs}")
            if replace(point, reason=_one_line(point.reason)) != other:
                raise LandscapeError(f"cannot write {file}: in {written.name}, {point} would read back as {other}")
        named = written.problem is not None or "=" in written.name
        if (named and written.name != back.name) or dict(written.context) != back.context:
            read = f"{back.name} {back.context}"
            raise LandscapeError(f"cannot write {file}: {written.name} {written.context} would read back as {read}")
