"""Read single cells of a landscape's CSV text; `landscape_file` explains the columns."""

from dataclasses import fields

from gemmtune.engine.io.numbers import parse_number
from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.records.config import Value
from gemmtune.engine.records.measurement import Status

RESOURCES = {f"build.{field.name}": field.name for field in fields(Resources)}
"""Columns of the resources that a block occupies, each with its field of `Resources`."""
BUILD_SECONDS = "build.seconds"
"""Column of the build time, in seconds."""
LEAST_NS, MOST_NS = 1e-6, 1e18
"""Shortest and longest believable time, in nanoseconds; the longest is about thirty years."""
COST_SECONDS = "cost.seconds"
"""Column of the total cost of an evaluation, in seconds."""
TIME = {"time_us": 3, "time_ms": 6}
"""Columns of the recorded time, each with the power of ten that converts it to nanoseconds."""
TIMES = {"times_us": 3, "times_ms": 6}
"""Columns of the single launches, each with the power of ten that converts them to nanoseconds."""
COST = {COST_SECONDS: 1.0, "compile_ms": 1e-3, "bench_ms": 1e-3, "framework_ms": 1e-3}
"""Columns of what an evaluation cost, each with its unit in seconds."""

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
_DECIMAL = "0123456789."


def read_status(text: str) -> tuple[Status, str]:
    """Return status and reason; an unknown word means a failed run, with the word as its reason."""
    head, _, reason = text.partition(":")
    word = head.strip().lower()
    try:
        status = Status(word)
    except ValueError:
        status, reason = _FOREIGN_STATUS.get(word, Status.RUN_FAILED), text
    return status, "" if status is Status.OK else reason.strip()


def plain_times(text: str, power: int) -> list[float] | None:
    """Return times joined by `;` in nanoseconds, or None unless each is a plain decimal within the bounds.

    Nearly all cells are; this is several times faster than `nanoseconds`, which judges the others.
    """
    if not text or text.strip(f"{_DECIMAL};"):
        return None
    unit = f"e{power}"
    try:
        found = list(map(float, f"{text.replace(';', f'{unit};')}{unit}".split(";")))
    except ValueError:  # an empty or a wrong part
        return None
    return found if min(found) >= LEAST_NS and max(found) <= MOST_NS else None


def launches(text: str, power: int) -> list[float]:
    """Return the times of launches, joined by `;`, in nanoseconds.

    Raises:
        ValueError: a time is no number, or out of bounds; the message is its text.
    """
    found = plain_times(text, power)
    return [nanoseconds(part, power) for part in text.split(";") if part] if found is None else found


def nanoseconds(text: str, power: int) -> float:
    """Return a time in nanoseconds; raises ValueError if it is no number, or out of bounds; the message is its text."""
    spelled = f"{text}e{power}"  # the text as a float × 1000 would round: times must read back equal
    try:
        found = float(spelled) if text and not text.strip(_DECIMAL) else parse_number(spelled)
    except ValueError:
        found = parse_number(text) * 10**power  # the text has an exponent, or is no number
    if not LEAST_NS <= found <= MOST_NS:
        raise ValueError(text)
    return float(found)


def whole_number(text: str) -> int:
    """Return a count; raise ValueError if the text is none."""
    number = parse_number(text)
    if not isinstance(number, int) or number < 0:  # an int has 18 digits at most
        raise ValueError(text)
    return number


def duration(text: str) -> float:
    """Return a number of seconds; raise ValueError if the text is none."""
    seconds = parse_number(text)
    if not 0 <= seconds <= MOST_NS / 1e9:
        raise ValueError(text)
    return float(seconds)


def value(text: str) -> Value:
    """Return the value of a parameter: a truth value, a number or a text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return parse_number(text)
    except ValueError:
        return text
