"""A table as CuTe dispatchers read it: one file of rows, and the loaders for cutlass.operators and for QuACK.

A dispatcher has no other library behind it, so it gets the best of its own space for every problem, also where another
space, or the vendor library, leads the table's row: an entry's `loss` says what that costs.

Source of the names: cutlass/operators/metadata/design (nvidia-cutlass-operators 0.3.0), quack/gemm_config.py (0.6.5).
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.resources import files

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.problem import DType, Op, Problem
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.tables.m_buckets import ROUNDING_BOUND, rounded_loss
from gemmtune.engine.tables.table_file import table_sha256

__all__ = ["CuteExporter", "problem_key"]

_SCHEMA = 1
_KERNEL = {"cute_gemm": "operator", "quack_gemm": "gemm_config"}
"""Space to the field that names the kernel in its dispatcher's terms."""
_SPACES = tuple(_KERNEL)
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
    "gemmtune_cute_table.py": "table_loader.py",
    "gemmtune_cutlass.py": "cutlass_loader.py",
    "gemmtune_quack.py": "quack_loader.py",
}
_READER = ("gemmtune.engine.tables.cute.table_loader", "gemmtune_cute_table")
"""Where the loaders find their reader: here, and beside the table."""


class CuteExporter(Exporter):
    """Writes `cute_table.json`, `gemmtune_cutlass.py` and `gemmtune_quack.py`, and the reader these two share."""

    spaces = _SPACES
    example = ("cute_gemm", Config(dict(zip(_OPERATOR, _EXAMPLE, strict=True))))

    def export(self, table: Table) -> Mapping[str, str]:
        """For each of the spaces the best choice that a row has of it; the rows without one are counted in `left_out`.

        Choices that rest on other evidence than the row's first, or on another protocol, are none.

        Raises:
            TableError: a row's problem or config cannot be said in the dispatchers' terms, two rows look alike to
                them, or no row has a CuTe kernel.
        """
        served = {space: _served(table, space) for space in _SPACES}
        left_out = {space: len(table.rows) - len(rows) for space, rows in served.items() if len(rows) < len(table.rows)}
        if table.rows and not any(served.values()):
            first = table.rows[0]
            there = ", ".join(sorted({choice.space for row in table.rows for choice in row.choices}))
            raise TableError(
                f"{first.problem.name}: a CuTe dispatcher cannot run space {first.choices[0].space!r}, and no row has "
                f"a choice of {' or '.join(_SPACES)} (choices are of {there}): tune with one of these spaces"
            )
        content = {
            "schema": _SCHEMA,
            "gemmtune": version("gemmtune"),
            "table_sha256": table_sha256(table),
            "device": {"sku": table.device.sku, "name": table.device.name, "arch": table.device.arch},
            "objective": table.objective,
            "rounding_bound": ROUNDING_BOUND,
            "left_out": left_out,
            "rows": {space: _entries(table.device, rows) for space, rows in served.items()},
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


@dataclass(frozen=True, slots=True)
class _Served:
    """A row as one dispatcher knows it."""

    row: Row
    """The table's."""
    own: Row
    """The same with the choices of the dispatcher's space alone; there is one."""


def _served(table: Table, space: str) -> list[_Served]:
    found = []
    for row in table.rows:
        first = row.choices[0]
        alike = (c for c in row.choices if (c.evidence, c.protocol) == (first.evidence, first.protocol))
        own = tuple(choice for choice in alike if choice.space == space)
        if own:
            found.append(_Served(row, replace(row, choices=own)))
    return found


def _entries(device: Device, rows: Sequence[_Served]) -> dict[str, dict[str, object]]:
    by_m: defaultdict[Problem, dict[int, Row]] = defaultdict(dict)
    for served in rows:
        by_m[replace(served.row.problem, m=1)][served.row.problem.m] = served.own
    entries: dict[str, dict[str, object]] = {}
    names: dict[str, str] = {}
    for served in rows:
        problem = served.row.problem
        key = problem_key(problem)
        if key in entries:
            raise TableError(
                f"{names[key]} and {problem.name} have the same CuTe key, which knows no tf32: export one of them"
            )
        names[key] = problem.name
        rounded = rounded_loss(served.own, by_m[replace(problem, m=1)])
        entries[key] = _entry(device, served.row, served.own.choices[0], rounded)
    return entries


def _entry(device: Device, row: Row, choice: Choice, rounded: float | None) -> dict[str, object]:
    """What one dispatcher is given for one problem, with what is known of it.

    `winner`: the space of the row's first choice. `loss`: time over the winner's, minus 1; 0 for the winner itself,
    below 0 where the winner is the vendor library and this is faster, but not beyond the noise. Of a choice that did
    not reach the final it rests on a measurement at another moment. `margin`: the vendor library's time over this
    one's, minus 1; null where that was not measured. `regret_bound`: the row's, which is of its fastest choice; null
    for another.
    """
    problem, config, winner = row.problem, choice.config, row.choices[0]
    named = _operator(problem, config) if choice.space == "cute_gemm" else _gemm_config(device, problem, config)
    return {
        _KERNEL[choice.space]: named,
        "problem": problem.name,
        "config": dict(config),
        "time_ns": choice.time_ns,
        "low_ns": choice.low_ns,
        "high_ns": choice.high_ns,
        "samples": choice.samples,
        "evidence": choice.evidence.value,
        "protocol": choice.protocol,
        "packages": dict(Toolchain.parse(choice.toolchain).versions),
        "winner": winner.space,
        "loss": choice.time_ns / winner.time_ns - 1,
        "margin": None if row.baseline is None else row.baseline.time_ns / choice.time_ns - 1,
        "regret_bound": row.regret_bound if choice is row.fastest else None,
        "rounded_loss": rounded,
    }


def _operator(problem: Problem, config: Config) -> dict[str, object]:
    """What tells the operator from every other that serves the problem: its class and what varies of its design."""
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


def _gemm_config(device: Device, problem: Problem, config: Config) -> dict[str, object]:
    """The fields of QuACK's GemmConfig, each one that varies: its defaults are not those of any one GPU."""
    _require(problem, config, "quack_gemm", _GEMM_CONFIG)
    return {**config, "device_capacity": device.capability[0]}


def _require(problem: Problem, config: Config, space: str, params: tuple[str, ...]) -> None:
    if set(config) != set(params):
        differing = ", ".join(sorted(set(config) ^ set(params)))
        raise TableError(f"{problem.name}: {config!r} is not a config of {space}: see {differing}")


def _dtype_name(dtype: DType) -> str:
    """As torch and CUTLASS both spell it, without the underscores of the one and the capitals of the other."""
    return dtype.torch_name.replace("_", "")


def _loader(source: str) -> str:
    text = files("gemmtune.engine.tables.cute").joinpath(source).read_text(encoding="utf-8")
    return text.replace(*_READER)


def _hash(content: Mapping[str, object]) -> str:
    body = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()
