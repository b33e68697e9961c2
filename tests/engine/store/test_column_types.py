"""Records as they are stored: what an older row lacks has its default, and what no row may say is refused."""

from __future__ import annotations

import json

import pytest

from gemmtune.engine.records.measurement import Estimate, ReferenceLevel
from gemmtune.engine.seams.codec import Malformed
from gemmtune.engine.store.column_types import ESTIMATE

PLAIN = {"time_ns": 5.0, "low_ns": 4.0, "high_ns": 6.0}
LEVEL = {"reference": "torch 2.13.0", "board": "GPU-0", "time_ns": 1000.0}


@pytest.mark.parametrize(
    "estimate",
    [
        Estimate(5.0, 4.0, 6.0),
        Estimate(5.0, 5.0, 5.0),
        Estimate(5.0, 4.0, 6.0, ReferenceLevel(**LEVEL)),
        Estimate(5.0, 4.0, 6.0, ReferenceLevel(**LEVEL), "stopped early"),
        Estimate(5e-324, 5e-324, 1.7976931348623157e308),
    ],
)
def test_an_estimate_is_read_back_as_it_was(estimate):
    assert ESTIMATE.decode(ESTIMATE.encode(estimate)) == estimate


def test_an_estimate_is_written_without_what_is_empty():
    assert json.loads(ESTIMATE.encode(Estimate(5.0, 4.0, 6.0))) == PLAIN
    stopped = json.loads(ESTIMATE.encode(Estimate(5.0, 4.0, 6.0, stopped="x\0y")))["stopped"]
    assert stopped == r"x\x00y"  # no database holds a NUL


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"low_ns": 0.0}, "is not in low_ns=0.0"),
        ({"low_ns": -1.0}, "is not in low_ns"),
        ({"low_ns": 5.1}, "time_ns=5.0 is not in low_ns=5.1 to high_ns=6.0 above 0"),
        ({"high_ns": 4.9}, "is not in low_ns=4.0 to high_ns=4.9"),
        ({"high_ns": float("inf")}, "high_ns=inf is not a number"),
        ({"time_ns": float("nan")}, "time_ns=nan is not a number"),
        ({"stopped": 3}, "stopped=3 is not text"),
        ({"level": LEVEL | {"time_ns": 0.0}}, r"level\.time_ns=0\.0 is not a number above 0"),
        ({"level": LEVEL | {"time_ns": float("inf")}}, r"level\.time_ns=inf is not a number above 0"),
        ({"level": {}}, "level lacks the field 'board'"),
        ({"other": 1}, "unknown field 'other'"),
        ({"time_ns": "5"}, "time_ns='5' is not a number"),
    ],
)
def test_an_estimate_that_no_bench_gives_is_refused(changes, error):
    with pytest.raises(Malformed, match=error):
        ESTIMATE.decode(json.dumps({**PLAIN, **changes}))
