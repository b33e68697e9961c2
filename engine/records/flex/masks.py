"""Short texts of usual masks and score functions, and lengths of documents."""

from __future__ import annotations

import re
from itertools import accumulate, pairwise

from gemmtune.engine.records.flex.functions import Function, parse_function, text_of
from gemmtune.engine.records.number_text import number_text

MOST_DOCUMENTS = 65_536
"""Largest number of documents."""
NONE = "none"
"""Mask that hides nothing, and score function that changes nothing."""
_CAUSAL, _SAME = "le(kv,q)", "eq(at(t0,kv),at(t0,q))"
_FIXED = {"causal": _CAUSAL, "document": _SAME, "causal_document": f"and({_SAME},{_CAUSAL})"}
_NUMBERED = {
    "window": "and(le(kv,q),lt(sub(q,kv),{0}))",
    "prefix": "or(le(kv,q),lt(kv,{0}))",
    "softcap": "mul(tanh(div(s,{0})),{0})",
}

_SPELLED = ("an integer", "[0-9]+"), ("a number", r"[0-9]+(\.[0-9]+)?")
_MOST = 2**31


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
    if found := re.fullmatch(r"(window|prefix|softcap)\((.*)\)", text):
        kind, spelled = _SPELLED[found[1] == "softcap"]
        if not re.fullmatch(spelled, found[2]) or not 0 < float(found[2]) < _MOST:
            raise ValueError(f"{text[:80]!r}: {found[2][:20]!r} is not {kind} above 0 and below {_MOST}")
        return parse_function(_NUMBERED[found[1]].format(found[2]))
    return parse_function(_FIXED.get(text, text))


def short(text: str, nothing: str = "1") -> str:
    """Return the short or canonical text of a function, `none` for `nothing`; raises ValueError if it is none."""
    if text == NONE:
        return text
    whole = text_of(function_of(text))
    known = {text_of(parse_function(its)): name for name, its in _FIXED.items()}
    if whole in (*known, nothing):
        return known.get(whole, NONE)
    numbers = {float(each) for each in re.findall(r"\d+(?:\.\d+)?", whole)}
    near = {each + step for each in numbers for step in (0, 1) if 0 < each + step < _MOST}
    fits = [(name, each) for name in _NUMBERED for each in near if name == "softcap" or each.is_integer()]
    asked = sorted(f"{name}({number_text(each)})" for name, each in fits if "e" not in number_text(each))
    return next((each for each in asked if text_of(function_of(each)) == whole), whole)


def lengths_of(documents: str, size: int) -> tuple[int, ...]:
    """Return the lengths of documents that fill `size` positions: stated ones, or uneven ones of a stated number."""
    parts = [int(each) for each in documents.split(".")]
    if len(parts) > 1:
        return tuple(parts)
    sums = [0, *accumulate(1 + place * 5 % 8 for place in range(parts[0]))]
    return tuple(size * end // sums[-1] - size * begin // sums[-1] for begin, end in pairwise(sums))
