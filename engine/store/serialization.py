"""Convert records to rows of the database's tables, without their ids, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

from sqlalchemy import RowMapping

from gemmtune.engine.records.artifact import Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.final import FailedFinalist, Final, Finalist
from gemmtune.engine.records.measurement import DeviceState, Estimate, Evidence, Measurement, ReferenceLevel, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task

__all__ = [
    "device_text",
    "final_of",
    "final_row",
    "measurement_of",
    "measurement_row",
    "problem_text",
    "task_of",
    "task_row",
    "toolchain_of",
    "toolchain_row",
]

_T = TypeVar("_T")


def problem_text(problem: Problem) -> str:
    """Return JSON of the fields that tell problems apart; equal problems give equal text."""
    return _json(problem.to_fields())


def device_text(device: Device) -> str:
    """Return JSON of the fields that tell devices apart; equal devices give equal text."""
    return _json({f.name: getattr(device, f.name) for f in fields(device) if f.compare})


def task_row(task: Task) -> dict[str, str]:
    """Return the row of `tasks`; equal tasks give equal rows."""
    problem, device = problem_text(task.problem), device_text(task.device)
    return {"key": task.key, "space": task.space, "problem": problem, "device": device}


def task_of(row: RowMapping) -> Task:
    """Return the task of a row of `tasks`."""
    return Task(*_problem_and_device(row), row["space"])


def toolchain_row(toolchain: Toolchain) -> dict[str, str]:
    """Return the row of `toolchains`."""
    return {"versions": _json(toolchain.versions)}


def toolchain_of(row: RowMapping) -> Toolchain:
    """Return the toolchain of a row of `toolchains`."""
    return _toolchain(json.loads(row["versions"]))


def measurement_row(measurement: Measurement, task_id: int, toolchain_id: int) -> dict[str, object]:
    """Return the row of `measurements`."""
    norm = measurement.error_norm
    return {
        "task_id": task_id,
        "config_digest": measurement.config.digest,
        "protocol": measurement.protocol,
        "evidence": str(measurement.evidence),
        "toolchain_id": toolchain_id,
        "config": measurement.config.json,
        "status": str(measurement.status),
        "reason": _storable(measurement.reason),
        "samples_ns": _json(measurement.samples_ns),
        "estimate": None if measurement.estimate is None else _json(_estimate_fields(measurement.estimate)),
        "outliers": _json(measurement.outliers),
        "drift": measurement.drift,
        "energy_joules": measurement.energy_joules,
        "error_norm": None if norm is None else repr(norm),
        "before": _record(measurement.before),
        "after": _record(measurement.after),
        "resources": _record(measurement.resources),
        "build_seconds": measurement.build_seconds,
        "worker": measurement.worker,
        "created_at": measurement.created_at,
    }


def measurement_of(
    row: RowMapping, task_by_id: Mapping[int, Task], toolchain_by_id: Mapping[int, Toolchain]
) -> Measurement:
    """Return the measurement of a row of `measurements`."""
    norm = row["error_norm"]
    return Measurement(
        task=task_by_id[row["task_id"]],
        config=Config.from_json(row["config"]),
        status=Status(row["status"]),
        evidence=Evidence(row["evidence"]),
        protocol=row["protocol"],
        toolchain=toolchain_by_id[row["toolchain_id"]],
        worker=row["worker"],
        created_at=row["created_at"],
        reason=row["reason"],
        samples_ns=tuple(json.loads(row["samples_ns"])),
        estimate=None if row["estimate"] is None else _estimate(json.loads(row["estimate"])),
        outliers=tuple(json.loads(row["outliers"])),
        drift=row["drift"],
        energy_joules=row["energy_joules"],
        error_norm=None if norm is None else float(norm),
        before=_read(DeviceState, row["before"]),
        after=_read(DeviceState, row["after"]),
        resources=_read(Resources, row["resources"]),
        build_seconds=row["build_seconds"],
    )


def final_row(final: Final) -> dict[str, object]:
    """Return the row of `finals`."""
    finalists = [
        {
            "space": finalist.task.space,
            "config": dict(finalist.config),
            "toolchain": finalist.toolchain.versions,
            "estimate": _estimate_fields(finalist.estimate),
            "samples_ns": finalist.samples_ns,
            "behind": finalist.behind,
        }
        | ({"run": finalist.run} if finalist.run != 1 else {})  # left out as in older rows: equal finals, equal text
        for finalist in final.finalists
    ]
    refuted = [
        {"space": out.task.space, "config": dict(out.config), "reason": _storable(out.reason)} for out in final.failed
    ]
    return {
        "problem": problem_text(final.problem),
        "device": device_text(final.device),
        "protocol": final.protocol,
        "worker": final.worker,
        "created_at": final.created_at,
        "content": _json({"finalists": finalists, "refuted": refuted}),
    }


def final_of(row: RowMapping) -> Final:
    """Return the final of a row of `finals`."""
    problem, device = _problem_and_device(row)
    content = json.loads(row["content"])
    finalists = (
        Finalist(
            task=Task(problem, device, finalist["space"]),
            config=Config(finalist["config"]),
            toolchain=_toolchain(finalist["toolchain"]),
            estimate=_estimate(finalist["estimate"]),
            samples_ns=tuple(finalist["samples_ns"]),
            behind=(finalist["behind"][0], finalist["behind"][1]),
            run=finalist.get("run", 1),
        )
        for finalist in content["finalists"]
    )
    refuted = (
        FailedFinalist(Task(problem, device, out["space"]), Config(out["config"]), out["reason"])
        for out in content["refuted"]
    )
    return Final(tuple(finalists), row["protocol"], row["worker"], row["created_at"], tuple(refuted))


def _problem_and_device(row: RowMapping) -> tuple[Problem, Device]:
    return Problem.from_fields(json.loads(row["problem"])), Device(**json.loads(row["device"]))


def _toolchain(versions: list[list[str]]) -> Toolchain:
    return Toolchain(tuple((package, version) for package, version in versions))


def _storable(text: str) -> str:
    # Messages of compilers and drivers may hold bytes that are no text; a database refuses those and NUL.
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _estimate_fields(estimate: Estimate) -> dict[str, Any]:
    fields = asdict(estimate)
    if estimate.level is None:
        del fields["level"]  # left out as in older rows: a final that is stored again has equal text
    if estimate.stopped:
        fields["stopped"] = _storable(estimate.stopped)
    else:
        del fields["stopped"]  # left out as in older rows
    return fields


def _estimate(fields: Mapping[str, Any]) -> Estimate:
    level = fields.get("level")
    return Estimate(**{**fields, "level": None if level is None else ReferenceLevel(**level)})


def _record(record: DeviceState | Resources | None) -> str | None:
    return None if record is None else _json(asdict(record))


def _read(kind: type[_T], text: str | None) -> _T | None:
    if text is None:
        return None
    record = json.loads(text)  # JSON lists become tuples; a field that an older row lacks has its default
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in record.items()})
