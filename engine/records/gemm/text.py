"""The text form of a GEMM problem: its name, and its fields as text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gemmtune.engine.records.epilogue.chain import Epilogue
from gemmtune.engine.records.epilogue.text import parse_epilogue
from gemmtune.engine.records.errors import ProblemError, did_you_mean
from gemmtune.engine.records.gemm.stated import STATED
from gemmtune.engine.records.gemm.terms import MAX_SIZE, DType, implied_types
from gemmtune.engine.records.workload import refuse_foreign

SHOWN = 200
"""Characters of a wrong text in a message."""
_EXPECTED = {
    int: f"an integer from 1 to {MAX_SIZE}",
    int | None: "an integer",
    float: "a number above 0",
    bool: "true or false",
}
_TEXT_HELP = "expected [BATCHx]MxNxK[:DTYPE[:LAYOUT[:OP]]], for example 2048x4096x4096:bf16:nt"


def record_of(text: str) -> dict[str, str]:
    """Return the fields that `[BATCHx]MxNxK[:DTYPE[:LAYOUT[:OP]]][:FIELD=VALUE...]` gives, as text.

    Raises:
        ProblemError: the text is malformed.
    """
    sizes, *rest = text.strip().lower().split(":")
    plain = [part for part in rest if "=" not in part]
    others = [part.partition("=")[::2] for part in rest if "=" in part]
    if not re.fullmatch(r"\d+x\d+x\d+(x\d+)?", sizes) or len(plain) > 3:
        several = re.search(r"[,;\s]\s*\d+x\d+x\d", text)
        way_out = "it names several problems, each of which needs a --problem of its own, or a place in the list"
        raise ProblemError(f"malformed problem {text[:SHOWN]!r}: {way_out if several else _TEXT_HELP}")
    placed = zip(("k", "n", "m", "batch"), sizes.split("x")[::-1], strict=False)
    given = [*placed, *zip(("dtype", "layout", "op"), plain, strict=False), *others]
    record = dict(given)
    if twice := [name for name in record if [each for each, _ in given].count(name) > 1]:
        raise ProblemError(f"{text[:SHOWN]!r} gives {twice[0]} twice: leave one out")
    return record


def values_of(record: Mapping[str, str], types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a problem's fields; a field that is missing or empty is left out.

    Args:
        record: the fields as text; `dtype` and `layout` set the fields that they cover.
        types: types of the problem's fields by their names.

    Raises:
        ProblemError: a field is unknown, missing (m, n, k) or malformed.
    """
    refuse_foreign(record)
    texts = dict(record)
    dtype = texts.pop("dtype", None)
    if dtype is not None:
        texts = _types(dtype) | texts
    layout = texts.pop("layout", None)
    if layout is not None:
        if not re.fullmatch("[nt]{2}", layout):
            raise ProblemError(f"layout {layout[:SHOWN]!r} is not one of nn, nt, tn, tt")
        texts = {"a_layout": layout[0], "b_layout": layout[1]} | texts
    if unknown := sorted(set(texts) - set(types)):
        known = ", ".join(sorted(types))
        meant = did_you_mean(unknown[0], (*types, "dtype", "layout"))
        raise ProblemError(f"unknown problem field {unknown[0][:SHOWN]!r}; {meant}known: {known}, dtype, layout")
    for size in ("m", "n", "k"):
        if not texts.get(size):
            raise ProblemError(f"problem field {size!r} is missing; m, n and k are needed")
    return {name: parsed_field(name, text, types) for name, text in texts.items() if text != ""}


def _types(dtype: str) -> dict[str, str]:
    """Return the types that the type of both operands implies, as text."""
    plain = _operand_type("fp32" if dtype == "tf32" else dtype)
    out_dtype, acc_dtype = implied_types(plain)
    return {
        "a_dtype": plain.value,
        "b_dtype": plain.value,
        "out_dtype": out_dtype.value,
        "acc_dtype": acc_dtype.value,
        "allow_tf32": str(dtype == "tf32"),
    }


def _operand_type(text: str) -> DType:
    """Return the type of both operands by its name."""
    if re.fullmatch("[nt]{2}", text):
        raise ProblemError(f"dtype {text[:SHOWN]!r} is a layout: the order is MxNxK:DTYPE:LAYOUT:OP")
    try:
        found = DType(text)
    except ValueError:
        found = DType.INT32
    if found is DType.INT32:
        known = ", ".join(each for each in DType if each is not DType.INT32).replace("fp32", "fp32, tf32")
        eight = " (of 8 bits: e4m3 or e5m2)" if text in ("fp8", "float8", "f8") else ""
        raise ProblemError(f"dtype {text[:SHOWN]!r} is not one of {known}{eight}")
    return found


def text_of(value: object) -> str:
    """Return a field's value as text, which `values_of` reads."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def parsed_field(name: str, text: str, types: Mapping[str, Any]) -> Any:  # noqa: ANN401 (of the field's type)
    """Parse the text of a field by the field's type; raises ProblemError for a malformed one."""
    kind = types[name]
    try:
        if kind is Epilogue:
            return parse_epilogue(text)
        if kind == int | None:
            return int(text)
        return {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError) as error:
        if kind is Epilogue:
            raise ProblemError(str(error)) from None
        expected = (
            "a number" if name in STATED and kind is float else _EXPECTED.get(kind) or f"one of {', '.join(kind)}"
        )
        raise ProblemError(f"{name}={text[:SHOWN]!r} is not {expected}") from None
