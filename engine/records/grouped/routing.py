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
_LEAST_EXPONENT, _MOST_EXPONENT, _MOST_ROWS = 0.0001, 10, 10**18 - 1


def canonical(routing: str, groups: int) -> str:
    """Return the canonical text of a routing over so many groups: `uniform`, `zipf`, `zipf(1.2)`, `counts(3.0.5)`.

    Raises:
        ProblemError: the text is no routing, or has another number of groups.
    """
    found = re.fullmatch(r"(uniform|zipf|counts)(?:\(([^()]*)\))?", routing.strip().lower())
    name, value = found.groups() if found else ("", None)
    if not found or (name == UNIFORM and value is not None):
        raise ProblemError(f"routing={routing[:80]!r} is none of {_FORMS}")
    if name == "zipf" and value is not None:
        return "zipf" if (exponent := exponent_text(value)) == "1" else f"zipf({exponent})"
    if name == "counts":
        counts = counts_in(value or "", groups, "group")
        if not any(counts):
            raise ProblemError(f"routing={routing[:80]!r} sends no row to any group: give a count above 0")
        return f"counts({'.'.join(map(str, counts))})"
    return name


def exponent_text(value: str) -> str:
    """Return the canonical text of an exponent of zipf; raises ProblemError for one that is none."""
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", value) or not _LEAST_EXPONENT <= float(value) <= _MOST_EXPONENT:
        bounds = f"{_LEAST_EXPONENT} to {_MOST_EXPONENT}"
        raise ProblemError(f"routing: the exponent {value[:80]!r} of zipf is not a number from {bounds}")
    return number_text(float(value))


def counts_in(value: str, groups: int, each: str) -> list[int]:
    """Return the counts of `3.0.5`, one per group; raises ProblemError for others, and calls a group `each`."""
    texts = value.split(".") if value else []
    if wrong := [text for text in texts if not re.fullmatch("[0-9]{1,18}", text)]:
        raise ProblemError(
            f"routing: the count {wrong[0][:80]!r} is not an integer from 0 to {_MOST_ROWS}, as in 3.0.5"
        )
    if len(texts) != groups:
        raise ProblemError(f"routing has {len(texts)} counts for {groups} {each}s: give one per {each}")
    return [int(text) for text in texts]


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
