"""Exporter for CuTe dispatchers: one file of rows, and the loaders for cutlass.operators and for QuACK.

A dispatcher runs its own space alone, so it gets the best choice of that space for every problem. Where another space
or the vendor library leads the table's row, the entry's `loss` says by how much.

Source of the names: cutlass/operators/metadata/design (nvidia-cutlass-operators 0.3.0), quack/gemm_config.py (0.6.5).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gemmtune.engine.consumers.cute.table_loader import KERNEL, SCHEMA, kernel_of, parse_cute_table
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config, Value
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.gemm.terms import Accumulation, Op
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.tables.diff import terms
from gemmtune.engine.tables.export import sealed_json
from gemmtune.engine.tables.spans.m_buckets import ROUNDING_BOUND, rounded_loss
from gemmtune.engine.tables.standalone import standalone

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
_EXACT = "quack_gemm"
"""Space whose dispatcher runs kernels with exact sums alone."""
_PACKAGE = "gemmtune.engine.consumers.cute"
_READER = (f"{_PACKAGE}.table_loader", "gemmtune_cute_table")
"""Module that the loaders import: in this package, and beside an exported table."""


class CuteExporter(Exporter):
    """Export `cute_table.json`, its loaders `gemmtune_cutlass.py` and `gemmtune_quack.py`, and their reader."""

    spaces = tuple(KERNEL)
    example = ("cute_gemm", _EXAMPLE)

    def export(self, table: Table) -> Mapping[str, str]:
        """Export the best choice of each CuTe space that a row of a plain mm has; `left_out` counts the other rows.

        Choices with other evidence or another protocol than the row's first choice are left out.

        Returns:
            The text of each file, by name.

        Raises:
            TableError: two rows have one key, a config is not of its space, or no row of a plain mm has a CuTe kernel.
        """
        served = {space: _served(table, space) for space in KERNEL}
        left_out = {space: len(table.rows) - len(rows) for space, rows in served.items() if len(rows) < len(table.rows)}
        if table.rows and not any(served.values()):
            first = table.rows[0]
            there = ", ".join(sorted({choice.space for row in table.rows for choice in row.choices}))
            raise TableError(
                f"{first.problem.name}: a CuTe dispatcher cannot run space {first.choices[0].space!r}, and no row of a "
                f"plain mm has a choice of {' or '.join(KERNEL)} (choices are of {there}): tune with one of them"
            )
        content = {
            "rounding_bound": ROUNDING_BOUND,
            "left_out": left_out,
            "params": {space: _params(table.device, space, rows) for space, rows in served.items()},
            "rows": {space: _entries(table.device, rows) for space, rows in served.items()},
        }
        return {
            "cute_table.json": sealed_json(table, SCHEMA, content, parse_cute_table),
            "gemmtune_cute_table.py": standalone(f"{_PACKAGE}.table_loader"),
            "gemmtune_cutlass.py": standalone(f"{_PACKAGE}.cutlass_loader", _READER),
            "gemmtune_quack.py": standalone(f"{_PACKAGE}.quack_loader", _READER),
        }


def problem_key(problem: Problem) -> str:
    """Return the key a dispatcher makes of its operands: `512x1024x256:bfloat16:bfloat16:bfloat16:float32:nt`."""
    dtypes = (problem.a_dtype, problem.b_dtype, problem.out_dtype, problem.acc_dtype)
    names = [dtype.torch_name.replace("_", "") for dtype in dtypes]  # CUTLASS's names in lower case
    return ":".join((f"{problem.m}x{problem.n}x{problem.k}", *names, f"{problem.a_layout}{problem.b_layout}"))


def _served(table: Table, space: str) -> list[tuple[Row, Row]]:
    """Return the rows of plain products that have a choice of a space, each with a copy that has these choices alone.

    Dispatchers are asked for a product with a bias or an epilogue in other ways, and QuACK's sums 8-bit floats exactly.
    """
    found = []
    for row in table.rows:
        own = tuple(c for c in row.choices if c.space == space and terms(c) == terms(row.choices[0]))
        problem = gemm(row.problem)
        sums_fast = problem.a_dtype.is_float8 and problem.accumulation is Accumulation.FAST  # in fewer bits than fp32
        if own and problem.op is Op.MM and not problem.epilogue and not (space == _EXACT and sums_fast):
            found.append((row, replace(row, choices=own)))
    return found


def _params(device: Device, space: str, rows: Sequence[tuple[Row, Row]]) -> dict[str, Sequence[Value]]:
    """Return the values of the space's params on a device, which loaders check configs by; nothing without rows."""
    if not rows:
        return {}
    params = registry.space(space).params(Task(rows[0][0].problem, device, space))
    return {param.name: list(param.values) for param in params}


def _entries(device: Device, rows: Sequence[tuple[Row, Row]]) -> dict[str, dict[str, object]]:
    by_m: defaultdict[Workload, dict[int, Row]] = defaultdict(dict)
    for _, own in rows:
        by_m[own.problem.series][own.problem.size] = own
    entries: dict[str, dict[str, object]] = {}
    names: dict[str, str] = {}
    for row, own in sorted(rows, key=lambda its: gemm(its[0].problem).dynamic_m):
        problem = gemm(row.problem)
        key = problem_key(problem)
        if key in entries and problem.dynamic_m:
            continue  # a dispatcher takes m as it comes: the row of the static m serves it
        if key in entries:
            raise TableError(
                f"{names[key]} and {problem.name} have the same CuTe key, which knows no tf32: export one of them"
            )
        names[key] = problem.name
        entries[key] = _entry(device, row, own.choices[0], rounded_loss(own, by_m[problem.series]))
    return entries


def _entry(device: Device, row: Row, choice: Choice, rounded: float | None) -> dict[str, object]:
    """Return one dispatcher's entry for one problem, with the varying fields of its kernel.

    | field | meaning |
    |---|---|
    | winner | space of the row's first choice |
    | loss | time over the winner's, minus 1; below 0 where this choice leads the vendor library within the noise |
    | lead | time of the vendor library over this choice's, minus 1; null where it was not measured |
    | regret_bound | the row's bound, which holds for its fastest choice; null for another choice |
    | rounded_loss | largest loss at sizes that round up to this m; null where the row serves its m alone |

    A choice outside the final was measured at another moment than the winner.
    """
    config, winner = dict(choice.config), row.choices[0]
    return {
        KERNEL[choice.space]: kernel_of(choice.space, config, device.arch),
        "problem": row.problem.name,
        "config": config,
        **{name: getattr(choice, name) for name in ("time_ns", "low_ns", "high_ns", "samples", "evidence", "protocol")},
        "packages": dict(Toolchain.parse(choice.toolchain).versions),
        "winner": winner.space,
        "loss": choice.time_ns / winner.time_ns - 1,
        "lead": None if row.baseline is None else row.baseline.time_ns / choice.time_ns - 1,
        "regret_bound": row.regret_bound if choice is row.fastest else None,
        "rounded_loss": rounded,
    }
