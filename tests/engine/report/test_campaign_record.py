"""Numbers of a page: leads with their intervals, sums over rows, and how a search came to its best."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence, Status
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.records.verdict import BoardVerdict, Trust
from gemmtune.engine.report import campaign_record
from gemmtune.engine.report.campaign_record import Evaluation, ProblemRecord, best_so_far, gather, lead, within
from gemmtune.engine.report.html.campaign_page import campaign_html
from gemmtune.engine.seams import registry


def choice(space, time_ns, low_ns=None, high_ns=None, evidence=Evidence.MEASURED):
    ends = low_ns or time_ns, high_ns or time_ns
    return Choice(space, Config({}), time_ns, *ends, 9, evidence, "torch 2.13.0", "graph-cold-l2")


ATEN, KERNEL = choice("aten", 100.0, 90.0, 120.0), choice("triton_mm", 80.0, 75.0, 100.0)
ROWS = (
    Row(Problem(128, 64, 32, weight=3.0), (KERNEL, ATEN), ATEN, 0.25, ()),
    Row(Problem(16, 64, 32), (ATEN, KERNEL), ATEN, 0.25, ()),
    Row(Problem(32, 64, 32), (choice("triton_mm", 50.0, evidence=Evidence.REPLAYED),), None, None, ()),
)
TABLE = Table(catalogue.device("H200"), ROWS, "latency")


def test_a_lead_has_the_ends_of_both_intervals():
    assert lead(ROWS[0]) == lead(ROWS[1]) == pytest.approx((0.25, 90 / 100 - 1, 120 / 75 - 1))
    assert lead(ROWS[2]) is lead(replace(ROWS[1], choices=(ATEN,))) is None


def test_sums_and_the_mean_are_over_rows_with_a_baseline():
    record = gather(TABLE, registry.objective("latency"))
    assert [row.problem.size for row in record.table.rows] == [16, 32, 128]
    assert record.totals == (400.0, 340.0)
    assert record.mean_lead == pytest.approx(1.25**0.5 - 1)
    assert record.evidence == {Evidence.MEASURED, Evidence.REPLAYED}
    assert record.problems == ()
    alone = gather(replace(TABLE, rows=ROWS[2:]), registry.objective("latency"))
    assert (alone.mean_lead, alone.totals) == (None, (0, 0))


def test_the_problems_of_the_largest_weighted_times_are_looked_at(monkeypatch):
    monkeypatch.setattr(campaign_record, "DETAILED", 2)
    monkeypatch.setattr(campaign_record, "_problem", lambda row, *_: row.problem.m)
    assert gather(
        TABLE, registry.objective("latency"), database=SimpleNamespace(boards=SimpleNamespace(verdicts=dict))
    ).problems == (128, 16)


def evaluation(score):
    status = Status.RUN_FAILED if score is None else Status.OK
    return Evaluation("triton_mm", Config({}), status, "", score, "2026-11-26T00:00:00+00:00", None)


@pytest.mark.parametrize(
    ("scores", "best", "near"),
    [
        ([None, 5.0, None, 4.0, 4.4], [None, 5.0, 5.0, 4.0, 4.0], 2),
        ([4.0, 5.0], [4.0, 4.0], 1),
        ([None], [None], 0),
        ([], [], 0),
    ],
)
def test_a_search_is_told_by_the_best_so_far_and_what_is_near(scores, best, near):
    assert best_so_far(scores) == best
    record = ProblemRecord(ROWS[0], tuple(map(evaluation, scores)), None, None)
    assert within(record, 0.1000001) == near
    assert record.scores == [score for score in scores if score is not None]
    assert record.problem == ROWS[0].problem


def test_the_page_names_the_boards_that_are_off():
    off = BoardVerdict("GPU-7", "host/gpu7", Trust.OFF, "its times are 1.08 times those of other boards", "", "")
    seen = replace(off, board="GPU-8", trust=Trust.SEEN, reason="")
    record = replace(gather(TABLE, registry.objective("latency")), boards=(off, seen))
    page = campaign_html(record)
    assert "GPU-7" in page
    assert "1.08 times" in page
    assert "GPU-8" not in page
