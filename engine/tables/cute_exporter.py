"""A table as CuTe dispatchers read it: one file of rows, and the loaders for cutlass.operators and for QuACK.

Source of the names: cutlass/operators/metadata/design (nvidia-cutlass-operators 0.3.0), quack/gemm_config.py (0.6.5).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from importlib.resources import files

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.problem import DType, Op, Problem
from gemmtune.engine.records.table import Row, Table
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.tables.rounding import ROUNDING_BOUND, rounded_loss
from gemmtune.engine.tables.table_file import table_sha256

__all__ = ["CuteExporter", "problem_key"]

_SCHEMA = 1
_SPACES = ("cute_gemm", "quack_gemm")
# The params of the space cute_gemm, and the classes of its schedulers.
_OPERATOR = (
    "operator",
    "mma_tiler_m",
    "mma_tiler_n",
    "cluster_shape_m",
    "cluster_shape_n",
    "use_2cta_instrs",
    "use_tma_store",
    "tile_scheduler",
)
_EXAMPLE = ("Sm90StaticPersistentGemmOperator", 128, 128, 2, 1, False, False, "none")
_SCHEDULERS = {
    "static": "StaticPersistentTileSchedulerMetadata",
    "clc": "CLCDynamicPersistentTileSchedulerMetadata",
    "none": None,
}
# The params of the space quack_gemm, named as the fields of QuACK's GemmConfig.
_GEMM_CONFIG = (
    "tile_m",
    "tile_n",
    "cluster_m",
    "cluster_n",
    "pingpong",
    "swap_ab",
    "is_dynamic_persistent",
    "max_swizzle_size",
)
_LOADERS = {
    "gemmtune_cute_table.py": "cute_table.py",
    "gemmtune_cutlass.py": "cutlass_operators.py",
    "gemmtune_quack.py": "quack.py",
}
_READER = ("gemmtune.engine.tables.loaders.cute_table", "gemmtune_cute_table")
"""Where the loaders find their reader: here, and beside the table."""


class CuteExporter(Exporter):
    """Writes `cute_table.json`, `gemmtune_cutlass.py` and `gemmtune_quack.py`, and the reader these two share."""

    spaces = _SPACES
    example = ("cute_gemm", Config(dict(zip(_OPERATOR, _EXAMPLE, strict=True))))

    def export(self, table: Table) -> Mapping[str, str]:
        """The first choice of every row that is a CuTe kernel; the other rows are counted in `left_out`.

        Raises:
            TableError: a row's problem or config cannot be said in the dispatchers' terms, two rows look alike to
                them, or no row's first choice is a CuTe kernel.
        """
        served = [row for row in table.rows if row.choices[0].space in _SPACES]
        left_out = Counter(row.choices[0].space for row in table.rows if row.choices[0].space not in _SPACES)
        if left_out and not served:
            first = table.rows[0]
            counts = ", ".join(f"{count} of {space!r}" for space, count in sorted(left_out.items()))
            raise TableError(
                f"{first.problem.name}: a CuTe dispatcher cannot run space {first.choices[0].space!r}, nor is another "
                f"row's first choice one of {', '.join(_SPACES)} (rows: {counts}): tune with one of these spaces"
            )
        content = {
            "schema": _SCHEMA,
            "gemmtune": version("gemmtune"),
            "table_sha256": table_sha256(table),
            "device": {"sku": table.device.sku, "name": table.device.name, "arch": table.device.arch},
            "objective": table.objective,
            "rounding_bound": ROUNDING_BOUND,
            "left_out": dict(left_out),
            "rows": _rows(table, served),
        }
        text = json.dumps({**content, "sha256": _hash(content)}, indent=2, sort_keys=True) + "\n"
        return {"cute_table.json": text, **{name: _loader(source) for name, source in _LOADERS.items()}}


def problem_key(problem: Problem) -> str:
    """The problem as a dispatcher sees its operands: `512x1024x256:bfloat16:bfloat16:bfloat16:float32:nt`.

    Raises:
        TableError: the problem is not a plain mm.
    """
    if problem.op is not Op.MM:
        raise TableError(f"{problem.name}: the CuTe table is written for mm, not for {problem.op}: leave the row out")
    if problem.epilogue != "none":
        raise TableError(f"{problem.name}: the CuTe table's keys know no epilogue={problem.epilogue!r}")
    dtypes = (problem.a_dtype, problem.b_dtype, problem.out_dtype, problem.acc_dtype)
    sizes = f"{problem.m}x{problem.n}x{problem.k}"
    return ":".join((sizes, *map(_dtype_name, dtypes), f"{problem.a_layout}{problem.b_layout}"))


def _rows(table: Table, served: list[Row]) -> dict[str, dict[str, object]]:
    by_m: defaultdict[Problem, dict[int, Row]] = defaultdict(dict)
    for row in table.rows:
        by_m[replace(row.problem, m=1)][row.problem.m] = row
    rows: dict[str, dict[str, object]] = {}
    names: dict[str, str] = {}
    for row in served:
        key = problem_key(row.problem)
        if key in rows:
            raise TableError(
                f"{names[key]} and {row.problem.name} have the same CuTe key, which knows no tf32: export one of them"
            )
        names[key] = row.problem.name
        rows[key] = _row(table.device, row, rounded_loss(row, by_m[replace(row.problem, m=1)]))
    return rows


def _row(device: Device, row: Row, loss: float | None) -> dict[str, object]:
    choice = row.choices[0]
    kernel = {"operator": _operator(row)} if choice.space == "cute_gemm" else {"gemm_config": _gemm_config(device, row)}
    return {
        **kernel,
        "problem": row.problem.name,
        "space": choice.space,
        "config": dict(choice.config),
        "time_ns": choice.time_ns,
        "low_ns": choice.low_ns,
        "high_ns": choice.high_ns,
        "samples": choice.samples,
        "evidence": choice.evidence.value,
        "protocol": choice.protocol,
        "packages": dict(Toolchain.parse(choice.toolchain).versions),
        "margin": row.margin,
        "regret_bound": row.regret_bound,
        "rounded_loss": loss,
    }


def _operator(row: Row) -> dict[str, object]:
    """What tells the operator from every other that serves the problem: its class and what varies of its design."""
    problem, config = row.problem, row.choices[0].config
    _require(problem, config, "cute_gemm", _OPERATOR)
    scheduler = config["tile_scheduler"]
    if scheduler not in _SCHEDULERS:
        raise TableError(f"{problem.name}: tile_scheduler={scheduler!r} is not one of {', '.join(_SCHEDULERS)}")
    return {
        "class": config["operator"],
        "design": {
            "tile_shape": [config["mma_tiler_m"], config["mma_tiler_n"]],
            "cluster_shape": [config["cluster_shape_m"], config["cluster_shape_n"]],
            "use_2cta_mma": config["use_2cta_instrs"],
            "use_tma_store": config["use_tma_store"],
            "tile_scheduler": _SCHEDULERS[scheduler],
        },
    }


def _gemm_config(device: Device, row: Row) -> dict[str, object]:
    """The fields of QuACK's GemmConfig, each one that varies: its defaults are not those of any one GPU."""
    config = row.choices[0].config
    _require(row.problem, config, "quack_gemm", _GEMM_CONFIG)
    return {**config, "device_capacity": device.capability[0]}


def _require(problem: Problem, config: Config, space: str, params: tuple[str, ...]) -> None:
    if set(config) != set(params):
        differing = ", ".join(sorted(set(config) ^ set(params)))
        raise TableError(f"{problem.name}: {config!r} is not a config of {space}: see {differing}")


def _dtype_name(dtype: DType) -> str:
    """As torch and CUTLASS both spell it, without the underscores of the one and the capitals of the other."""
    return dtype.torch_name.replace("_", "")


def _loader(source: str) -> str:
    text = files("gemmtune.engine.tables.loaders").joinpath(source).read_text(encoding="utf-8")
    return text.replace(*_READER)


def _hash(content: Mapping[str, object]) -> str:
    body = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()
