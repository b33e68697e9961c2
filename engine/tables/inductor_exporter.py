"""A table as PyTorch Inductor reads it: the dictionary of its lookup table, the facts behind it, and the loader.

`lookup_table.json` is what the stock `torch._inductor.lookup_table.LookupTableChoices` reads, nothing else in it.
Source of keys and rows: torch/_inductor/lookup_table/choices.py and template_heuristics/triton.py, torch 2.11 to 2.13.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.problem import DType, Layout, Op, Problem
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.tables.table_file import table_sha256

__all__ = ["InductorExporter", "lookup_key"]

_INFO_SCHEMA = 1
_TRITON_PARAMS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_stages", "num_warps")


class InductorExporter(Exporter):
    """Writes `lookup_table.json`, `table_info.json` (device, versions, hashes, times) and `gemmtune_inductor.py`."""

    def export(self, table: Table) -> Mapping[str, str]:
        """The first choice of every row, one choice a key, so that Inductor has nothing left to benchmark.

        Raises:
            TableError: a row's problem or space cannot be said in Inductor's terms, or two rows look alike to Inductor.
        """
        lookup: dict[str, list[dict[str, object]]] = {}
        served: dict[str, Row] = {}
        for row in table.rows:
            key = lookup_key(table.device, row.problem)
            if key in lookup:
                name = served[key].problem.name
                raise TableError(
                    f"{name} and {row.problem.name} have the same Inductor key, which knows neither tf32 "
                    f"nor the output's dtype: export one of them"
                )
            lookup[key] = [_entry(row)]
            served[key] = row
        text = _dump(lookup)
        loader = files("gemmtune.engine.tables.loaders").joinpath("inductor.py").read_text(encoding="utf-8")
        return {
            "lookup_table.json": text,
            "table_info.json": _dump(_info(table, served, text)),
            "gemmtune_inductor.py": loader,
        }


def lookup_key(device: Device, problem: Problem) -> str:
    """The key torch makes of the two operands on this device: (dtype, sizes, strides) each, then the operation.

    A dimension of size 1 keeps the stride the layout gives it (B of k×1 stored transposed has (1, k)), as the plain
    and the transposed view of a contiguous tensor have it.

    Raises:
        TableError: the problem is not a plain mm of one dtype.
    """
    _check_problem(problem)
    m, n, k = problem.m, problem.n, problem.k
    a = _operand(problem.a_dtype, m, k, problem.a_layout)
    b = _operand(problem.b_dtype, k, n, problem.b_layout)
    return f"{device.name}+({a}, {b})+mm"


def _operand(dtype: DType, rows: int, columns: int, layout: Layout) -> str:
    strides = [columns, 1] if layout is Layout.N else [1, rows]
    return f"(torch.{dtype.torch_name}, {[rows, columns]}, {strides})"


def _check_problem(problem: Problem) -> None:
    if problem.op is not Op.MM:
        raise TableError(f"{problem.name}: Inductor's table is written for mm, not for {problem.op}: leave the row out")
    if problem.epilogue != "none":
        raise TableError(f"{problem.name}: Inductor chooses epilogues itself, epilogue={problem.epilogue!r} has no key")
    dtypes = {problem.a_dtype, problem.b_dtype, problem.out_dtype}
    if len(dtypes) > 1:
        raise TableError(f"{problem.name}: Inductor's mm has one dtype, not {', '.join(sorted(dtypes))}")
    if problem.acc_dtype is not DType.FP32:
        raise TableError(f"{problem.name}: Inductor's mm accumulates in fp32, not in {problem.acc_dtype}")


def _entry(row: Row) -> dict[str, object]:
    choice = row.choices[0]
    if choice.space == "aten":
        return {"template_id": "aten::mm"}
    if choice.space == "triton_mm":
        return {"template_id": "triton::mm", **_triton_kwargs(row.problem, choice)}
    raise TableError(f"{row.problem.name}: no Inductor template for space {choice.space!r}; known: aten, triton_mm")


def _triton_kwargs(problem: Problem, choice: Choice) -> dict[str, object]:
    """Every keyword of the template that its heuristic would set, for torch 2.11 takes a row as it stands.

    EVEN_K is computed, never left out: 2.12 and 2.13 fill gaps from the heuristic's first config, whose EVEN_K may be
    wrong for this BLOCK_K and then gives wrong results. ALLOW_TF32 must not stand here: torch sets it (TypeError).
    """
    if set(choice.config) != set(_TRITON_PARAMS):
        differing = sorted(set(choice.config) ^ set(_TRITON_PARAMS))
        raise TableError(f"{problem.name}: {choice.config!r} is not a config of triton_mm: see {', '.join(differing)}")
    try:
        kwargs: dict[str, object] = {name: choice.config.integer(name) for name in _TRITON_PARAMS}
        even_k = problem.k % choice.config.integer("BLOCK_K") == 0
    except TypeError as error:
        raise TableError(f"{problem.name}: not a config of triton_mm: {error}") from None
    return {**kwargs, "EVEN_K": even_k, "ACC_TYPE": "tl.float32", "USE_FAST_ACCUM": False}


def _info(table: Table, served: Mapping[str, Row], lookup: str) -> dict[str, object]:
    return {
        "schema": _INFO_SCHEMA,
        "device": {"sku": table.device.sku, "name": table.device.name, "arch": table.device.arch},
        "objective": table.objective,
        "table_sha256": table_sha256(table),
        "lookup_sha256": hashlib.sha256(lookup.encode()).hexdigest(),
        "toolchains": sorted({row.choices[0].toolchain for row in table.rows}),
        "rows": {key: _row_info(row) for key, row in served.items()},
    }


def _row_info(row: Row) -> dict[str, object]:
    choice = row.choices[0]
    return {
        "problem": row.problem.name,
        "space": choice.space,
        "config": dict(choice.config),
        "time_ns": choice.time_ns,
        "evidence": choice.evidence.value,
        "protocol": choice.protocol,
        "regret_bound": row.regret_bound,
    }


def _dump(record: Mapping[str, object]) -> str:
    return json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
