"""Exporter for CuTe dispatchers: one file of rows, and the loaders for cutlass.operators and for QuACK.

A dispatcher runs its own space alone, so it gets the best choice of that space for every problem. Where another space
or the vendor library leads the table's row, the entry's `loss` says by how much.

Source of the names: cutlass/operators/metadata/design (nvidia-cutlass-operators 0.3.0), quack/gemm_config.py (0.6.5).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.problem import Op, Problem
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.tables.diff import terms
from gemmtune.engine.tables.export import sealed_json
from gemmtune.engine.tables.m_buckets import ROUNDING_BOUND, rounded_loss

__all__ = ["CuteExporter", "problem_key"]

_SCHEMA = 1
_KERNEL = {"cute_gemm": "operator", "quack_gemm": "gemm_config"}
"""Field that names the kernel in its dispatcher's terms, by space."""
_EXAMPLE = Config(
    {
        "operator": "Sm90StaticPersistentGemmOperator",
        "mma_tiler_m": 128,
        "mma_tiler_n": 128,
        "cluster_shape_m": 2,
        "cluster_shape_n": 1,
        "use_2cta_instrs": False,
        "use_tma_store": False,
        "tile_scheduler": "none",
    }
)
_SCHEDULERS = {
    "static": "StaticPersistentTileSchedulerMetadata",
    "clc": "CLCDynamicPersistentTileSchedulerMetadata",
    "none": None,
}
# Params of the space quack_gemm, named as the fields of QuACK's GemmConfig.
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
"""Module of the reader that the loaders import: in this package, and beside an exported table."""


class CuteExporter(Exporter):
    """Export `cute_table.json`, its loaders `gemmtune_cutlass.py` and `gemmtune_quack.py`, and their reader."""

    spaces = tuple(_KERNEL)
    example = ("cute_gemm", _EXAMPLE)

    def export(self, table: Table) -> Mapping[str, str]:
        """Export the best choice of each CuTe space that a row has; `left_out` counts the rows without one.

        Choices with other evidence or another protocol than the row's first choice are left out.

        Returns:
            The text of each file, by name.

        Raises:
            TableError: dispatchers have no key for a row's problem, or one key for two rows. Or a config is not of its
                space, or no row has a CuTe kernel.
        """
        served = {space: _served(table, space) for space in _KERNEL}
        left_out = {space: len(table.rows) - len(rows) for space, rows in served.items() if len(rows) < len(table.rows)}
        if table.rows and not any(served.values()):
            first = table.rows[0]
            there = ", ".join(sorted({choice.space for row in table.rows for choice in row.choices}))
            raise TableError(
                f"{first.problem.name}: a CuTe dispatcher cannot run space {first.choices[0].space!r}, and no row has "
                f"a choice of {' or '.join(_KERNEL)} (choices are of {there}): tune with one of these spaces"
            )
        rows = {space: _entries(table.device, of_space) for space, of_space in served.items()}
        text = sealed_json(table, _SCHEMA, {"rounding_bound": ROUNDING_BOUND, "left_out": left_out, "rows": rows})
        return {"cute_table.json": text, **{name: _loader(source) for name, source in _LOADERS.items()}}


def problem_key(problem: Problem) -> str:
    """Return the key a dispatcher makes of its operands: `512x1024x256:bfloat16:bfloat16:bfloat16:float32:nt`.

    Raises:
        TableError: the problem is not a plain mm.
    """
    if problem.op is not Op.MM:
        raise TableError(f"{problem.name}: the CuTe table is written for mm, not for {problem.op}: leave the row out")
    if problem.epilogue != "none":
        raise TableError(f"{problem.name}: the CuTe table's keys know no epilogue={problem.epilogue!r}")
    dtypes = (problem.a_dtype, problem.b_dtype, problem.out_dtype, problem.acc_dtype)
    names = [dtype.torch_name.replace("_", "") for dtype in dtypes]  # CUTLASS's names in lower case
    return ":".join((f"{problem.m}x{problem.n}x{problem.k}", *names, f"{problem.a_layout}{problem.b_layout}"))


def _served(table: Table, space: str) -> list[tuple[Row, Row]]:
    """Return the rows that have a choice of a space, each with a copy that has the choices of this space alone."""
    found = []
    for row in table.rows:
        own = tuple(c for c in row.choices if c.space == space and terms(c) == terms(row.choices[0]))
        if own:
            found.append((row, replace(row, choices=own)))
    return found


def _entries(device: Device, rows: Sequence[tuple[Row, Row]]) -> dict[str, dict[str, object]]:
    by_m: defaultdict[Problem, dict[int, Row]] = defaultdict(dict)
    for _, own in rows:
        by_m[replace(own.problem, m=1)][own.problem.m] = own
    entries: dict[str, dict[str, object]] = {}
    names: dict[str, str] = {}
    for row, own in rows:
        problem = row.problem
        key = problem_key(problem)
        if key in entries:
            raise TableError(
                f"{names[key]} and {problem.name} have the same CuTe key, which knows no tf32: export one of them"
            )
        names[key] = problem.name
        entries[key] = _entry(device, row, own.choices[0], rounded_loss(own, by_m[replace(problem, m=1)]))
    return entries


def _entry(device: Device, row: Row, choice: Choice, rounded: float | None) -> dict[str, object]:
    """Return one dispatcher's entry for one problem, with the varying fields of its kernel.

    | field | meaning |
    |---|---|
    | winner | space of the row's first choice |
    | loss | time over the winner's, minus 1; below 0 where this choice leads the vendor library within the noise |
    | margin | time of the vendor library over this choice's, minus 1; null where it was not measured |
    | regret_bound | the row's bound, which holds for its fastest choice; null for another choice |
    | rounded_loss | largest loss at sizes that round up to this m; null where the row serves its m alone |

    A choice outside the final was measured at another moment than the winner.
    """
    problem, config, winner = row.problem, choice.config, row.choices[0]
    if choice.space == "cute_gemm":
        kernel = _operator(problem, config)
    else:
        _require(problem, config, "quack_gemm", _GEMM_CONFIG)
        kernel = {**config, "device_capacity": device.capability[0]}
    return {
        _KERNEL[choice.space]: kernel,
        "problem": problem.name,
        "config": dict(config),
        **{name: getattr(choice, name) for name in ("time_ns", "low_ns", "high_ns", "samples", "evidence", "protocol")},
        "packages": dict(Toolchain.parse(choice.toolchain).versions),
        "winner": winner.space,
        "loss": choice.time_ns / winner.time_ns - 1,
        "margin": None if row.baseline is None else row.baseline.time_ns / choice.time_ns - 1,
        "regret_bound": row.regret_bound if choice is row.fastest else None,
        "rounded_loss": rounded,
    }


def _operator(problem: Problem, config: Config) -> dict[str, object]:
    """Return what identifies the operator among those that serve the problem: its class and its varying design."""
    _require(problem, config, "cute_gemm", set(_EXAMPLE))
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


def _require(problem: Problem, config: Config, space: str, params: Iterable[str]) -> None:
    if differing := sorted(set(config) ^ set(params)):
        raise TableError(f"{problem.name}: {config!r} is not a config of {space}: see {', '.join(differing)}")


def _loader(source: str) -> str:
    text = files("gemmtune.engine.tables.cute").joinpath(source).read_text(encoding="utf-8")
    return text.replace(*_READER)
