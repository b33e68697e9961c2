"""Inductor's names of a choice: template, keywords, and hash of the template's source.

Source: torch/_inductor/kernel/mm.py and bmm.py, template_heuristics/triton.py, torch 2.11 to 2.13.
"""

from __future__ import annotations

from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.problem import Op, Problem
from gemmtune.engine.records.table import Choice

__all__ = ["kwargs_of", "source_hash", "template_of"]

_TRITON_PARAMS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_stages", "num_warps")
_TRITON_SPACES = ("triton_mm", "triton_mm_tma")

# `src_hash` of the templates by torch's version, read in 2.11.0, 2.12.1 and 2.13.0.
_MM = ("triton::mm", "triton::mm_persistent_tma", "triton::bmm")
_HASHES = {
    "2.11": (
        "d4b90a54b960e7b3fb3abb24be0d43fc9b3c4d64c53ecd44187508e096498238",
        "546c26ab76103966291aa0566f5d7dffe6f2ae60e3c1d3f3bf91392fe7764bb7",
        "1635ad519a2790c283e0cd308d03f44e1673a8289810f371093fbdcba6ec4f6a",
    ),
    "2.12": (
        "d99842e466803e2d1dcd19b8faa992acd26dc9cb671b8eba7468c187f3b9007f",
        "0ddad0df156c4100681da6615637386d1e8c2403e70ea4662f747defec093ff8",
        "b66e027a389f827da63480cacf9fec1a513db71cf09df7ab609dff639d935f89",
    ),
    "2.13": (
        "d99842e466803e2d1dcd19b8faa992acd26dc9cb671b8eba7468c187f3b9007f",
        "0ddad0df156c4100681da6615637386d1e8c2403e70ea4662f747defec093ff8",
        "4acd70184f4e6d7dd871c00a5b945a6a4d3acd641ad6f7f1a3eb6902ab4cf85c",
    ),
}


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


def source_hash(template: str, torch: str) -> str | None:
    """Return the SHA-256 of a template's source in a version of torch such as `2.11.0+cu130`; None if unknown."""
    hashes = _HASHES.get(".".join(torch.split(".")[:2]))
    return dict(zip(_MM, hashes, strict=True)).get(template) if hashes else None
