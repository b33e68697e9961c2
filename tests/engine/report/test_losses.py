"""The report of a portfolio says how many configs it needs, and what they lose."""

from __future__ import annotations

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.report.losses import portfolio_report, ranges_text
from gemmtune.engine.tables.loss_limits import LossLimits
from gemmtune.engine.tables.portfolio import Pick, Portfolio
from gemmtune.engine.tables.ranges import RangesReport, SizeLoss

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


def sized(m, loss, in_range=True):
    return SizeLoss(Problem(m, 64, 32), "toy", loss, in_range)


@pytest.mark.parametrize(
    ("losses", "text"),
    [
        ([sized(16, 0.02), sized(32, 0.01)], "loss 2.00% at worst, 1.50% in the mean at 2 tuned m"),
        ([sized(16, 0.02), sized(32, None)], "loss 2.00% at worst, 2.00% in the mean at 2 tuned m (1 not measured)"),
        (
            [sized(16, 0.0, False), sized(32, None), sized(64, None, False)],
            "loss 0.00% at worst, 0.00% in the mean at 3 tuned m (2 outside of every range, 2 not measured)",
        ),
        ([sized(16, None), sized(32, None, False)], "loss unknown at 2 tuned m"),
    ],
)
def test_losses_over_sizes_are_summed_up_with_what_is_unknown(losses, text):
    assert ranges_text(RangesReport(1, tuple(losses), (), ())) == f"ranges of m: 1 range; {text}"


def test_probed_and_held_out_sizes_have_lines_of_their_own():
    report = RangesReport(2, (sized(16, 0.01),), (sized(20, 0.03),), (sized(24, 0.05, False),))
    assert ranges_text(report).splitlines() == [
        "ranges of m: 2 ranges; loss 1.00% at worst, 1.00% in the mean at 1 tuned m",
        "  loss 3.00% at worst, 3.00% in the mean at 1 probed m, between tuned ones",
        "  loss 5.00% at worst, 5.00% in the mean at 1 held-out m (1 outside of every range)",
    ]
    assert ranges_text(RangesReport(0, (), (), ())).startswith("ranges: none")
