"""Routings: how the rows of a grouped product spread over its groups."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.records.number_text import number_text

UNIFORM = "uniform"
"""Routing that draws each row's group with equal chances."""
_FORMS = f"{UNIFORM}, zipf, zipf(S) with an exponent S, counts(A.B.C…) with a count per group"
_MOST_EXPONENT = 10


def canonical(routing: str, groups: int) -> str:
    """Return the canonical text of a routing over so many groups: `uniform`, `zipf`, `zipf(1.2)`, `counts(3.0.5)`.

    Raises:
        ProblemError: the text is no routing, or has another number of groups.
    """
    found = re.fullmatch(r"(uniform|zipf|counts)(?:\(([0-9.]*)\))?", routing.strip().lower())
    name, value = found.groups() if found else ("", None)
    if not found or (name == UNIFORM and value is not None):
        raise ProblemError(f"routing={routing[:80]!r} is none of {_FORMS}")
    if name == "zipf" and value is not None:
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", value) or not 1e-4 <= float(value) <= _MOST_EXPONENT:
            raise ProblemError(f"routing={routing[:80]!r}: the exponent is a number from 0.0001 to {_MOST_EXPONENT}")
        return "zipf" if float(value) == 1 else f"zipf({number_text(float(value))})"
    if name == "counts":
        counts = value.split(".") if value else []
        if len(counts) != groups or not all(re.fullmatch("[0-9]{1,18}", each) for each in counts):
            raise ProblemError(f"{routing[:80]!r} has {len(counts)} counts for {groups} groups: give one per group")
        if not any(map(int, counts)):
            raise ProblemError(f"routing={routing[:80]!r} sends no row to any group: give a count above 0")
        return f"counts({'.'.join(str(int(each)) for each in counts)})"
    return name


@lru_cache(256)  # a space asks for it per config
def counts_of(routing: str, groups: int, rows: int) -> tuple[int, ...]:
    """Return the rows of each group; they add up to `rows`, and groups may be empty.

    `counts(…)` shares out the rows in proportion, so that they are the counts themselves where these add up to `rows`.
    Other routings draw each row's group from a seed that depends on the arguments alone: products of one layer have one
    routing.
    """
    name, _, value = routing.rstrip(")").partition("(")
    if name == "counts":
        return _shared_out([int(each) for each in value.split(".")], rows)
    import numpy as np

    exponent = float(value or 1) if name == "zipf" else 0.0
    shares = np.arange(1, groups + 1, dtype=np.float64) ** -exponent
    seed = hashlib.sha256(f"{routing} {groups} {rows}".encode()).digest()[:4]
    drawn = np.random.RandomState(int.from_bytes(seed, "big")).multinomial(rows, shares / shares.sum())  # frozen stream
    return tuple(map(int, drawn))


def _shared_out(weights: list[int], rows: int) -> tuple[int, ...]:
    """Return whole numbers that add up to `rows`, in proportion to the weights; the largest remainders get the rest."""
    total = sum(weights)
    counts = [rows * weight // total for weight in weights]
    behind = sorted(range(len(weights)), key=lambda each: (-(rows * weights[each] % total), each))
    for each in behind[: rows - sum(counts)]:
        counts[each] += 1
    return tuple(counts)
