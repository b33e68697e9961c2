"""Short texts of usual masks and score functions, and the pairs of query and key that a mask leaves."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from gemmtune.engine.records.flex.functions import Function, dimensions, evaluated, parse_function, reads, text_of
from gemmtune.engine.records.number_text import number_text

NONE = "none"
"""Mask that hides nothing, and score function that changes nothing."""
_CAUSAL, _SAME = "le(kv,q)", "eq(at(t0,kv),at(t0,q))"
_FIXED = {"causal": _CAUSAL, "document": _SAME, "causal_document": f"and({_SAME},{_CAUSAL})"}
_NUMBERED = {
    "window": "and(le(kv,q),lt(sub(q,kv),{0}))",
    "prefix": "or(le(kv,q),lt(kv,{0}))",
    "softcap": "mul(tanh(div(s,{0})),{0})",
}
_ROWS = 512  # queries at most whose keys are counted


def function_of(text: str) -> Function:
    """Return the function of a mask or a score by its text or short text; 1 for a mask `none`, `s` for a score's.

    | short text | what is seen, or what a score becomes |
    |---|---|
    | `causal` | keys up to the query |
    | `window(W)` | the last W keys up to the query |
    | `prefix(P)` | keys up to the query, and the first P |
    | `document`, `causal_document` | keys of the query's document; up to the query |
    | `softcap(C)` | C·tanh(s/C) |

    Raises:
        ValueError: the text is no function.
    """
    if found := re.fullmatch(r"(window|prefix|softcap)\((\d+(?:\.\d+)?)\)", text):
        if float(found[2]) >= 2**31:
            raise ValueError(f"{text[:80]!r}: {found[2][:20]} is not below {2**31}, the end of positions")
        return parse_function(_NUMBERED[found[1]].format(found[2]))
    return parse_function(_FIXED.get(text, text))


def short(text: str) -> str:
    """Return the short text of a mask or score function if it has one, else its canonical text.

    Raises:
        ValueError: the text is no function.
    """
    if text == NONE:
        return text
    whole = text_of(function_of(text))
    known = {text_of(parse_function(its)): name for name, its in _FIXED.items()}
    if whole in (*known, "1", "s"):
        return known.get(whole, NONE)
    numbers = {float(each) for each in re.findall(r"\d+(?:\.\d+)?", whole)}
    asked = {f"{name}({number_text(each + step)})" for name in _NUMBERED for each in numbers for step in (0, 1)}
    return next((each for each in sorted(asked) if "(0)" not in each and text_of(function_of(each)) == whole), whole)


def lengths_of(documents: str, size: int) -> tuple[int, ...]:
    """Return the lengths of documents that fill `size` positions: stated ones, or uneven ones of a stated number."""
    parts = [int(each) for each in documents.split(".")]
    if len(parts) > 1:
        return tuple(parts)
    weights = [1 + place * 5 % 8 for place in range(parts[0])]
    ends = [size * sum(weights[: place + 1]) // sum(weights) for place in range(parts[0])]
    return tuple(end - begin for begin, end in zip([0, *ends], ends, strict=False))


@lru_cache(maxsize=1024)
def coverage(mask: str, documents: str, queries: int, keys: int) -> tuple[float, float]:
    """Return the shares of pairs and of keys that a mask leaves, of as many queries as can be counted quickly."""
    import numpy as np

    if mask == NONE:
        return 1.0, 1.0
    function = function_of(mask)
    step = -(-queries // _ROWS)
    rows = np.arange(step // 2, queries, step)[:, None]
    values: dict[str, Any] = {"b": 0, "h": 0, "q": rows, "kv": np.arange(keys)[None]}
    if reads(function, "t0") and not dimensions(function):
        values["t0"] = keys - queries
    elif reads(function, "t0"):
        lengths = lengths_of(documents, max(queries, keys))
        values["t0"] = np.repeat(np.arange(len(lengths)), lengths)
    others: dict[str, Callable[..., Any]] = {
        "at": lambda tensor, *index: tensor[index[-1]],
        "where": np.where,
        "abs": np.abs,
    }
    seen = np.broadcast_to(np.asarray(evaluated(function, values, others)).astype(bool), (len(rows), keys))
    return max(float(seen.mean()), 1 / keys), max(float(seen.any(axis=0).mean()), 1 / keys)
