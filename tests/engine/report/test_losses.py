"""The report of a portfolio says how many configs it needs, and what they lose."""

from __future__ import annotations

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.report.losses import portfolio_report
from gemmtune.engine.tables.portfolio import LossLimits, Pick, Portfolio

OWN = [Config({"BLOCK_M": size}) for size in (64, 128)]
SHARED = Config({"BLOCK_M": 256})


def test_a_portfolio_is_reported_beside_each_problems_own_best():
    problems, losses = (Problem(512, 1024, 256, weight=3.0), Problem(1024, 1024, 256)), ((0.004, 0.012), (0.008, 0.01))
    picks = (Pick(p, "toy", SHARED, own, *loss) for p, own, loss in zip(problems, OWN, losses, strict=True))
    report = portfolio_report(Portfolio(LossLimits(), tuple(picks)))
    record = report.to_json()
    assert (record["configs_before"], record["configs"]) == (2, 1)
    assert (record["worst_loss"], record["worst_bound"]) == (0.008, 0.012)
    assert record["mean_loss"] == pytest.approx((3 * 0.004 + 0.008) / 4)
    assert record["picks"][0]["config"] == {"BLOCK_M": 256}
    assert report.to_text() == (
        "portfolio: 1 config for 2 choices instead of 2; loss 0.80% at worst (upper end of the intervals 1.20%), "
        "0.50% in the weighted mean"
    )


def test_empty_portfolio_compiles_nothing():
    report = portfolio_report(Portfolio(LossLimits(), ()))
    assert "nothing is compiled" in report.to_text()
    assert report.to_json()["configs"] == 0
