"""Single cells of a landscape: what each text means, and the bounds of what is believed."""

from __future__ import annotations

import pytest

from gemmtune.engine.records.measurement import Status
from gemmtune.engine.store.landscapes import csv_cells


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("ok", Status.OK, ""),
        (" OK ", Status.OK, ""),
        ("ok: fine", Status.OK, ""),
        ("correct", Status.OK, ""),
        ("build_failed", Status.BUILD_FAILED, ""),
        ("build_failed: no: registers ", Status.BUILD_FAILED, "no: registers"),
        ("compile_error", Status.BUILD_FAILED, "compile_error"),
        ("compile", Status.BUILD_FAILED, "compile"),
        ("CompilationFailedConfig", Status.BUILD_FAILED, "CompilationFailedConfig"),
        ("runtime_error", Status.RUN_FAILED, "runtime_error"),
        ("runtime", Status.RUN_FAILED, "runtime"),
        ("RuntimeFailedConfig", Status.RUN_FAILED, "RuntimeFailedConfig"),
        ("constraints", Status.INVALID, "constraints"),
        ("InvalidConfig", Status.INVALID, "InvalidConfig"),
        ("correctness", Status.WRONG_RESULT, "correctness"),
        ("timeout: 3 s", Status.TIMED_OUT, "timeout: 3 s"),
        ("sunspots", Status.RUN_FAILED, "sunspots"),
    ],
)
def test_a_status_is_a_word_of_ours_or_of_another_tool(text, status, reason):
    assert csv_cells.read_status(text) == (status, reason)


@pytest.mark.parametrize(
    ("text", "power", "found"),
    [
        ("5", 3, [5000.0]),
        ("5.1;6", 3, [5100.0, 6000.0]),
        ("0.25", 6, [250_000.0]),
        ("0.000000001", 3, [1e-6]),
        ("0.0000000009", 3, None),
        ("1000000000000000", 3, [1e18]),
        ("1000000000000001", 3, None),
        ("5;", 3, None),
        ("", 3, None),
        ("5 ", 3, None),
        ("-5", 3, None),
        ("5e3", 3, None),
        ("1.2.3", 3, None),
        ("0", 3, None),
    ],
)
def test_plain_times_are_decimals_within_the_bounds(text, power, found):
    assert csv_cells.plain_times(text, power) == found


@pytest.mark.parametrize(
    ("text", "power", "found"),
    [
        ("5", 3, 5000.0),
        ("0.3", 3, 300.0),  # 0.3 times 1000 would be 299.99999999999994
        ("1e-2", 6, 10_000.0),
        ("1e15", 3, 1e18),
    ],
)
def test_a_time_is_read_to_the_digit_also_with_an_exponent(text, power, found):
    assert csv_cells.nanoseconds(text, power) == found
    assert csv_cells.launches(f"{text};{text}", power) == [found, found]


@pytest.mark.parametrize("text", ["", "fast", "-1", "0", "nan", "inf", "1e16", "9e-10", "1.2.3", "0x10"])
def test_a_time_that_is_none_is_refused_with_its_text(text):
    with pytest.raises(ValueError, match=f"^{text}$|{text!r}"):
        csv_cells.nanoseconds(text, 3)


def test_launches_may_end_with_a_separator_and_be_none():
    assert csv_cells.launches("1;2e0;", 3) == [1000.0, 2000.0]
    assert csv_cells.launches("", 3) == []


@pytest.mark.parametrize(
    ("read", "good", "bad"),
    [
        (csv_cells.whole_number, {"0": 0, "255": 255, "9" * 18: 10**18 - 1}, ["-1", "1.5", "x", "9" * 19]),
        (csv_cells.duration, {"0": 0.0, "1.5": 1.5, "1e9": 1e9}, ["-0.1", "x", "1.1e9", "nan"]),
    ],
)
def test_counts_and_seconds_have_bounds(read, good, bad):
    assert {text: read(text) for text in good} == good
    for text in bad:
        with pytest.raises(ValueError):  # noqa: PT011 (the caller names the cell)
            read(text)


def test_a_value_is_a_truth_value_a_number_or_a_text():
    texts = ["True", "false", "16", "1.5", "nt", "1e3", "truth", ""]
    found = [csv_cells.value(text) for text in texts]
    assert found == [True, False, 16, 1.5, "nt", 1000.0, "truth", ""]
    assert list(map(type, found)) == [bool, bool, int, float, str, float, str, str]
