"""Inductor's names of a choice: template and keywords.

Source: torch/_inductor/kernel/mm.py and bmm.py, heuristics/template/triton.py.
"""

from __future__ import annotations

from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.problem import Op, Problem
from gemmtune.engine.records.table import Choice

__all__ = ["kwargs_of", "template_of"]

_TRITON_PARAMS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_stages", "num_warps")
_TRITON_SPACES = ("triton_mm", "triton_mm_tma")


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
    known = ", ".join(("aten", *_TRITON_SPACES))
    raise TableError(f"{problem.name}: no Inductor template of {problem.op} for space {choice.space!r}; known: {known}")


def kwargs_of(problem: Problem, choice: Choice) -> dict[str, int]:
    """Return the tuned keywords of a choice's template, by name.

    Raises:
        TableError: the config is not of its space.
    """
    space, config = choice.space, choice.config
    wanted = _TRITON_PARAMS if space in _TRITON_SPACES else ()
    if differing := sorted(set(config) ^ set(wanted)):
        raise TableError(f"{problem.name}: {config!r} is not a config of {space}: see {', '.join(differing)}")
    try:
        return {name: config.integer(name) for name in wanted}
    except TypeError as error:
        raise TableError(f"{problem.name}: not a config of {space}: {error}") from None
