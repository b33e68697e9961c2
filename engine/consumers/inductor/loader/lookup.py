"""Rows under Inductor's own keys, for its stock lookup table.

The stock table knows no ranges, no tf32 and no dtype of the output, and benchmarks a Triton row of addmm against ATen.
Rows of CuTe kernels, of products with an epilogue, of grouped ones and of attention are left out: the stock table
cannot name them.

Source of keys and rows: torch/_inductor/lookup_table/choices.py and heuristics/template/triton.py, torch 2.11 to 2.15.
"""

from collections.abc import Iterator, Sequence

from gemmtune.engine.consumers.inductor.loader.templates import is_cute, template_of
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.gemm.terms import Bias, DType
from gemmtune.engine.records.table import Choice, Row, Table


def lookup_table(table: Table) -> dict[str, list[dict[str, object]]]:
    """Return the first choice of every plain row with a static m, one choice per key, so that nothing is benchmarked.

    Rows with an alpha or a beta are left out.

    Stock Inductor checks no value: `parse_inductor_table` must have accepted the rows.

    Raises:
        TableError: Inductor has no template for a row's space, or one key for two rows.
    """
    lookup: dict[str, list[dict[str, object]]] = {}
    served: dict[str, Row] = {}
    for row in table.rows:
        if row.problem.kind != Problem.kind:
            continue
        problem, choice = gemm(row.problem), row.choices[0]
        has_scalars = (problem.alpha, problem.beta) != (1, 1)  # the key has 2 or 2.0, as the model writes it
        widens = problem.out_dtype is not problem.a_dtype
        other = widens or choice.space == "decompose_k" or is_cute(choice.space)  # stock Inductor asks for none
        if problem.dynamic_m or problem.epilogue or has_scalars or other:
            continue
        keys = lookup_keys(table.device, problem)
        for key in keys if choice.space == "aten" else keys[:1]:
            if key in lookup:
                name = served[key].problem.name
                raise TableError(
                    f"{name} and {row.problem.name} have the same Inductor key, which knows neither tf32 "
                    f"nor the output's dtype: export one of them"
                )
            lookup[key] = [_entry(problem, choice)]
            served[key] = row
    return lookup


def lookup_keys(device: Device, problem: Problem) -> tuple[str, ...]:
    """Return the keys that torch makes of the operands: (dtype, sizes, strides) of each, then the operation.

    The first key is that of the templates, where a bias vector is expanded to m rows of stride 0. The second key, if
    there is one, is that of ATen from torch 2.12 on, with the bias as it is.
    """
    return tuple(
        f"{device.name}+({', '.join(operands)})+{'alpha=1&beta=1+' if problem.op.adds_bias else ''}{problem.op}"
        for operands in _operands(problem)
    )


def _operands(problem: Problem) -> Iterator[tuple[str, ...]]:
    m, n, k = problem.m, problem.n, problem.k
    batch = [problem.batch] if problem.op.is_batched else []
    factors = (
        _tensor(problem.a_dtype, [*batch, m, k], problem.strides_of("a", m)),
        _tensor(problem.b_dtype, [*batch, k, n], problem.strides_of("b", m)),
    )
    if not problem.op.adds_bias:
        yield factors
        return
    row = n if problem.bias.has_rows else 0
    outer = [(m * row or n) if problem.bias.has_batch else 0 for _ in batch]
    yield _tensor(problem.out_dtype, [*batch, m, n], [*outer, row, 1]), *factors
    if problem.bias is Bias.VECTOR and not batch:
        yield _tensor(problem.out_dtype, [n], [1]), *factors


def _tensor(dtype: DType, sizes: Sequence[int], strides: Sequence[int]) -> str:
    return f"(torch.{dtype.torch_name}, {[*sizes]}, {[*strides]})"


def _entry(problem: Problem, choice: Choice) -> dict[str, object]:
    """Return a row with every keyword that the template's heuristic would set; torch 2.11 completes none.

    EVEN_K is computed here: from 2.12 on, torch takes it from the heuristic's first config, which gives wrong results
    for another BLOCK_K. ALLOW_TF32 is left out: torch sets it, and a second value is a TypeError.
    """
    named: dict[str, object] = {"template_id": template_of(problem, choice)}
    if choice.config:
        even_k = problem.k % choice.config.integer("BLOCK_K") == 0
        named |= {**choice.config, "EVEN_K": even_k, "ACC_TYPE": "tl.float32", "USE_FAST_ACCUM": False}
    return named
