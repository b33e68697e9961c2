"""The columns of a landscape file, and how a cell is read and written."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from decimal import Decimal
from pathlib import Path

from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.records.config import Value
from gemmtune.engine.records.measurement import Status

__all__ = [
    "BUILD_SECONDS",
    "COST",
    "COST_SECONDS",
    "IDENTITY",
    "RESOURCES",
    "TIME",
    "TIMES",
    "file_stem",
    "is_param",
    "read_count",
    "read_seconds",
    "read_status",
    "read_time",
    "read_value",
    "status_text",
    "time_text",
    "value_text",
]

TIME = {"time_us": 3, "time_ms": 6}
"""Columns of the time, with the power of ten that makes it nanoseconds."""
TIMES = {"times_us": 3, "times_ms": 6}
"""Columns of the launches, likewise."""
RESOURCES = {f"build.{f.name}": f.name for f in fields(Resources)}
"""Columns of what a block occupies, with the record's field."""
BUILD_SECONDS = "build.seconds"
"""Column of what the build cost."""
COST_SECONDS = "cost.seconds"
"""Column of what the evaluation cost in all."""
COST = {COST_SECONDS: 1.0, "compile_ms": 1e-3, "bench_ms": 1e-3, "framework_ms": 1e-3}
"""Columns that add up to that, with their unit in seconds."""
IDENTITY = ("task.space", "task.device")
"""With `problem.*`, the columns that tell the tasks of a file apart."""

_NOT_PARAMS = {*TIME, *TIMES, "status", "n_reps", *COST}

_FOREIGN_STATUS = {
    # recorded landscapes of AutoTuningAssociation/benchmark_hub
    "compile_error": Status.BUILD_FAILED,
    "runtime_error": Status.RUN_FAILED,
    # `invalidity` of the T4 results schema
    "correct": Status.OK,
    "constraints": Status.INVALID,
    "compile": Status.BUILD_FAILED,
    "runtime": Status.RUN_FAILED,
    "correctness": Status.WRONG_RESULT,
    "timeout": Status.TIMED_OUT,
    # Kernel Tuner's error classes
    "invalidconfig": Status.INVALID,
    "compilationfailedconfig": Status.BUILD_FAILED,
    "runtimefailedconfig": Status.RUN_FAILED,
}


def file_stem(file: Path) -> str:
    """`conv_a100` of `folder/conv_a100.csv.gz`: the name of a task that has no other."""
    return file.name.removesuffix(".gz").removesuffix(".csv").removesuffix(".json")


def is_param(column: str) -> bool:
    """Whether a column of that name holds a parameter."""
    return column not in _NOT_PARAMS and "." not in column


def read_time(text: str, power: int) -> float:
    """Nanoseconds of a time whose unit is 10^power ns.

    Raises:
        ValueError: not a finite number above 0.
    """
    try:
        nanoseconds = float(f"{text}e{power}")  # not float(text) * 1000: what was written reads back equal
    except ValueError:
        nanoseconds = float(text) * 10**power  # the text has an exponent of its own, or is no number
    if not 0 < nanoseconds < math.inf:
        raise ValueError(text)
    return nanoseconds


def time_text(nanoseconds: float) -> str:
    """Microseconds, with every digit and no exponent."""
    return format(Decimal(repr(nanoseconds)).scaleb(-3).normalize(), "f")


def read_status(text: str) -> tuple[Status, str]:
    """Status and reason; a word we do not know is a failed run, with the word as its reason."""
    head, _, reason = text.partition(":")
    word = head.strip().lower()
    try:
        status = Status(word)
    except ValueError:
        status, reason = _FOREIGN_STATUS.get(word, Status.RUN_FAILED), text
    return status, "" if status is Status.OK else reason.strip()


def status_text(status: Status, reason: str) -> str:
    """`ok`, `timed_out`, `build_failed: out of registers`; one line, whatever a compiler's words were."""
    line = " ".join(reason.split())
    return f"{status}: {line}" if line else str(status)


def read_value(text: str) -> Value:
    """A parameter's value: true or false, an integer, a number, or else the text itself."""
    if re.fullmatch(r"[+-]?\d{1,18}", text):
        return int(text)
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
        return float(text)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return text


def value_text(value: Value) -> str:
    """The text `read_value` reads back.

    Raises:
        ValueError: there is none, as for the string "16".
    """
    text = str(value).lower() if isinstance(value, bool) else str(value)
    back = read_value(text.strip())
    if not text or type(back) is not type(value) or back != value:
        raise ValueError(f"{value!r} would read back as {back!r}")
    return text


def read_count(text: str) -> int:
    """A whole number, 0 or more.

    Raises:
        ValueError: it is not.
    """
    if not text.isdecimal():
        raise ValueError(text)
    return int(text)


def read_seconds(text: str) -> float:
    """A finite number, 0 or more.

    Raises:
        ValueError: it is not.
    """
    seconds = float(text)
    if not 0 <= seconds < math.inf:
        raise ValueError(text)
    return seconds
