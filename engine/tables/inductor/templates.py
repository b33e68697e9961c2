"""Inductor's name of a choice's template.

Source: torch/_inductor/kernel/mm.py and bmm.py, heuristics/template/triton.py.
"""

from __future__ import annotations

from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.problem import Op, Problem
from gemmtune.engine.records.table import Choice

__all__ = ["template_of"]


def template_of(problem: Problem, choice: Choice) -> str:
    """Return the `uid` of a choice's template.

    Raises:
        TableError: Inductor has no template for the space and operation.
    """
    if choice.space == "aten":
        return f"aten::{problem.op}"
    if choice.space == "triton_mm":
        return "triton::bmm" if problem.op is Op.BMM else "triton::mm"
    if choice.space == "triton_mm_tma" and problem.op is not Op.BMM:
        return "triton::mm_persistent_tma"
    raise TableError(
        f"{problem.name}: no Inductor template of {problem.op} for space {choice.space!r}; "
        f"known: aten, triton_mm, triton_mm_tma"
    )
