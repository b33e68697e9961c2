"""Convert records to a pandas DataFrame; pandas is optional and imported here alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.toolchain.installed import require_extra

if TYPE_CHECKING:
    import pandas


def dataframe(rows: Iterable[Mapping[str, object]]) -> pandas.DataFrame:
    """Return a DataFrame with one line per row; columns of whole numbers are of type Int64, which knows missing values.

    Raises:
        ToolchainMissing: pandas is not installed.
    """
    require_extra("study", "a data frame", "pandas")
    import pandas

    records = list(rows)
    frame = pandas.DataFrame(records)
    kinds = {name: {type(row[name]) for row in records if row.get(name) is not None} for name in frame.columns}
    return frame.astype({name: "Int64" for name, found in kinds.items() if found == {int}})


def dataframe_of(measurements: Iterable[Measurement]) -> pandas.DataFrame:
    """Return one row per measurement; parameters have columns such as `config.BLOCK_M`, resources `build.registers`.

    Raises:
        ToolchainMissing: pandas is not installed.
    """
    return dataframe(map(_row, measurements))


def config_columns(config: Config) -> dict[str, object]:
    """Return a config's parameters by column: `config.BLOCK_M`."""
    return {f"config.{name}": value for name, value in config.items()}


def _row(measurement: Measurement) -> dict[str, object]:
    estimate, resources = measurement.estimate, measurement.resources
    row: dict[str, object] = {
        "problem": measurement.task.problem.name,
        "device": measurement.task.device.sku,
        "space": measurement.task.space,
        "status": str(measurement.status),
        "time_ns": None if estimate is None else estimate.time_ns,
        "low_ns": None if estimate is None else estimate.low_ns,
        "high_ns": None if estimate is None else estimate.high_ns,
        "samples": len(measurement.samples_ns),
        "energy_joules": measurement.energy_joules,
        "error_norm": measurement.error_norm,
        "reason": measurement.reason,
        "evidence": str(measurement.evidence),
        "protocol": measurement.protocol,
        "toolchain": measurement.toolchain.text,
        "worker": measurement.worker,
        "created_at": measurement.created_at,
        "build.seconds": measurement.build_seconds,
    }
    if resources is not None:
        row |= {f"build.{name}": value for name, value in asdict(resources).items()}
    return row | config_columns(measurement.config)
