"""Inductor's name of a choice's template.

Source: torch/_inductor/kernel/mm.py and bmm.py, heuristics/template/triton.py.
"""

from functools import lru_cache
from typing import TypeAlias

from gemmtune.engine.records.errors import TableError, UnknownPlugin
from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.gemm.terms import Op
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.engine.records.table import Choice
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams import registry
from gemmtune.engine.toolchain.vendor_gemm import operator_name

Product: TypeAlias = Problem | Grouped | Flex
"""Workload that Inductor compiles."""


def multiplied(workload: Workload) -> Product:
    """Return the workload as a product that Inductor compiles.

    Raises:
        ProblemError: the workload is of another kind.
    """
    return workload if isinstance(workload, Grouped | Flex) else gemm(workload)


def template_of(problem: Product, choice: Choice) -> str:
    """Return the `uid` of a choice's template, or `cute::` and the space of a kernel that the export contains.

    Raises:
        TableError: Inductor has no template for the space and operation.
    """
    if isinstance(problem, Grouped):
        if choice.space == problem.baseline_space:
            return "aten::_scaled_grouped_mm" if problem.epilogue else "aten::_grouped_mm"
        if is_cute(choice.space):
            return f"cute::{choice.space}"
        raise TableError(f"{problem.name}: no Inductor template for space {choice.space!r}; known: aten, quack_grouped")
    if isinstance(problem, Flex):
        names = {problem.baseline_space: "flex::default", problem.searched_space: f"flex::{problem.phase}"}
        if choice.space in names:
            return names[choice.space]
        raise TableError(f"{problem.name}: no kernel of Inductor for space {choice.space!r}; known: {', '.join(names)}")
    if choice.space == "aten":
        return operator_name(problem)
    if choice.space == "triton_mm":
        return "triton::bmm" if problem.op.is_batched else "triton::mm"
    if choice.space == "decompose_k" and problem.op is Op.MM:
        return choice.space
    is_described = problem.a_dtype.itemsize > 1 or problem.scaling is not None
    if is_described and not problem.op.is_batched and (problem.alpha, problem.beta) == (1, 1) and is_cute(choice.space):
        return f"cute::{choice.space}"
    raise TableError(
        f"{problem.name}: no Inductor template of {problem.op} for space {choice.space!r}; "
        f"known: aten, triton_mm, decompose_k, and spaces whose kernels need no gemmtune in production"
    )


def is_cute(space: str) -> bool:
    """Return whether a space's kernels need the CuTe packages in production."""
    try:
        return _needs_packages(space)
    except UnknownPlugin:
        return False


@lru_cache  # asked several times per row; an error is not kept: the space may be installed later
def _needs_packages(space: str) -> bool:
    return bool(registry.space(space).needs)
