from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Row
from gemmtune.engine.tables.spans.m_buckets import rounded_loss


def choice(tile, time_ns, spread=0.0, **changed):
    low_ns, high_ns = time_ns - spread, time_ns + spread
    made = Choice("cute_gemm", Config({"tile": tile}), time_ns, low_ns, high_ns, 32, Evidence.MEASURED, "x 1", "p")
    return replace(made, **changed)


def by_m(**rows):
    return {int(m[1:]): Row(Problem(int(m[1:]), 64, 64), tuple(c), None, 0.0, ()) for m, c in rows.items()}


def loss(m, rows):
    return rounded_loss(rows[m], rows)


def test_one_first_choice_at_both_ends_loses_nothing():
    assert loss(64, by_m(m32=[choice(128, 10.0, 1.0)], m64=[choice(128, 20.0, 1.0)])) == 0.0


def test_the_loss_is_the_upper_end_of_the_choice_over_the_lower_end_of_the_best():
    rows = by_m(m32=[choice(64, 1000.0, 2.0), choice(128, 1010.0, 3.0)], m64=[choice(128, 2000.0)])
    assert loss(64, rows) == pytest.approx(1013 / 998 - 1)


def test_every_measured_size_of_the_bucket_counts_and_none_outside():
    rows = by_m(
        m16=[choice(8, 1.0)],
        m32=[choice(128, 1000.0)],
        m48=[choice(64, 1000.0), choice(128, 1015.0)],
        m64=[choice(128, 2000.0)],
        m128=[choice(8, 1.0)],
    )
    assert loss(64, rows) == pytest.approx(0.015)


def test_a_loss_above_the_bound_keeps_the_row_to_its_own_m():
    rows = by_m(m32=[choice(64, 1000.0), choice(128, 1000 * 1.021)], m64=[choice(128, 2000.0)])
    assert loss(64, rows) is None


@pytest.mark.parametrize(
    "neighbour",
    [
        [choice(64, 1000.0)],
        [choice(64, 1000.0), choice(128, 1001.0, space="quack_gemm")],
        [choice(64, 1000.0), choice(128, 1001.0, toolchain="x 2")],
        [choice(64, 1000.0), choice(128, 1001.0, protocol="q")],
        [choice(64, 1000.0), choice(128, 1001.0, evidence=Evidence.ESTIMATED)],
        [choice(64, 1000.0, evidence=Evidence.REPLAYED), choice(128, 1001.0)],
        [choice(128, 1000.0, evidence=Evidence.ESTIMATED)],
    ],
)
def test_a_choice_that_was_not_measured_beside_the_best_is_not_rounded(neighbour):
    assert loss(64, by_m(m32=neighbour, m64=[choice(128, 2000.0)])) is None


def test_estimated_rows_are_not_rounded():
    estimated = [choice(128, 1.0, evidence=Evidence.ESTIMATED)]
    assert loss(64, by_m(m32=estimated, m64=estimated)) is None


@pytest.mark.parametrize(("m", "rows"), [(64, "m64"), (48, "m48 m24 m32"), (1, "m1")])
def test_only_a_power_of_two_with_its_lower_neighbour_may_round(m, rows):
    assert loss(m, by_m(**{name: [choice(128, 1000.0)] for name in rows.split()})) is None
