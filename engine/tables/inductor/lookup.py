"""Rows under Inductor's own keys, as its stock lookup table takes them.

It finds a row by the exact sizes and strides, and knows no range, no tf32 and no dtype of the output. Its addmm looks
up more than once (from torch 2.12 on with the bias as it is for ATen, and expanded for templates), and benchmarks a
Triton row against ATen: our loader does not. Of triton::mm_persistent_tma it needs facts of the host, of which a table
knows nothing: no such row is written.

Source of keys and rows: torch/_inductor/lookup_table/choices.py and template_heuristics/triton.py, torch 2.11 to 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.problem import Bias, DType, Layout, Op, Problem
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.tables.inductor.templates import kwargs_of, template_of

__all__ = ["lookup_keys", "lookup_table"]


def lookup_table(table: Table) -> dict[str, list[dict[str, object]]]:
    """The first choice of every row of a static m, one choice a key, so that there is nothing left to benchmark.

    Raises:
        TableError: a row cannot be said in Inductor's terms, or two rows look alike to Inductor.
    """
    lookup: dict[str, list[dict[str, object]]] = {}
    served: dict[str, Row] = {}
    for row in table.rows:
        choice = row.choices[0]
        if row.problem.dynamic_m or choice.space == "triton_mm_tma":
            continue
        keys = lookup_keys(table.device, row.problem)
        for key in keys if choice.space == "aten" else keys[:1]:
            if key in lookup:
                name = served[key].problem.name
                raise TableError(
                    f"{name} and {row.problem.name} have the same Inductor key, which knows neither tf32 "
                    f"nor the output's dtype: export one of them"
                )
            lookup[key] = [_entry(row.problem, choice)]
            served[key] = row
    return lookup


def lookup_keys(device: Device, problem: Problem) -> tuple[str, ...]:
    """The keys torch makes of the operands on this device: (dtype, sizes, strides) each, then the operation.

    The first is that of the templates, of which the bias of an addmm has m rows: expanded ones have stride 0. The
    second, if there is one, is that of ATen from torch 2.12 on: the bias as it is.

    A dimension of size 1 keeps the stride the layout gives it (B of k×1 stored transposed has (1, k)), as the plain
    and the transposed view of a contiguous tensor have it.
    """
    return tuple(
        f"{device.name}+({', '.join(operands)})+{'alpha=1&beta=1+' if problem.op is Op.ADDMM else ''}{problem.op}"
        for operands in _operands(problem)
    )


def _operands(problem: Problem) -> Iterator[tuple[str, ...]]:
    m, n, k = problem.m, problem.n, problem.k
    batch = problem.batch if problem.op is Op.BMM else None
    factors = (
        _matrix(problem.a_dtype, m, k, problem.a_layout, batch),
        _matrix(problem.b_dtype, k, n, problem.b_layout, batch),
    )
    if problem.bias is Bias.VECTOR:
        yield _tensor(problem.out_dtype, [m, n], [0, 1]), *factors
        yield _tensor(problem.out_dtype, [n], [1]), *factors
    elif problem.bias is Bias.MATRIX:
        yield _tensor(problem.out_dtype, [m, n], [n, 1]), *factors
    else:
        yield factors


def _matrix(dtype: DType, rows: int, columns: int, layout: Layout, batch: int | None) -> str:
    strides = [columns, 1] if layout is Layout.N else [1, rows]
    if batch is None:
        return _tensor(dtype, [rows, columns], strides)
    return _tensor(dtype, [batch, rows, columns], [rows * columns, *strides])


def _tensor(dtype: DType, sizes: list[int], strides: list[int]) -> str:
    return f"(torch.{dtype.torch_name}, {sizes}, {strides})"


def _entry(problem: Problem, choice: Choice) -> dict[str, object]:
    """Every keyword of the template that its heuristic would set, for torch 2.11 takes a row as it stands.

    EVEN_K is computed, never left out: 2.12 and 2.13 fill gaps from the heuristic's first config, whose EVEN_K may be
    wrong for this BLOCK_K and then gives wrong results. ALLOW_TF32 must not stand here: torch sets it (TypeError).
    """
    named: dict[str, object] = {"template_id": template_of(problem, choice)}
    kwargs = kwargs_of(problem, choice)
    if kwargs:
        even_k = problem.k % kwargs["BLOCK_K"] == 0
        named |= {**kwargs, "EVEN_K": even_k, "ACC_TYPE": "tl.float32", "USE_FAST_ACCUM": False}
    return named
