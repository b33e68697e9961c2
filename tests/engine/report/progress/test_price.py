"""The cost of a campaign is its GPU-hours and core-hours by the price that was named."""

from __future__ import annotations

import pytest

from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.progress.price import Price
from gemmtune.engine.report.progress.state import CampaignState, WorkerState


def test_a_cost_is_the_hours_of_gpus_and_cores_at_their_prices():
    state = CampaignState("ns", lambda: 0.0)
    state.workers = {"a": WorkerState(seconds=3600, busy_seconds=10), "b": WorkerState(seconds=1800)}
    state.core_seconds = 7200
    assert Price.parse("gpu=2.5").of(state) == pytest.approx(3.75)
    assert Price.parse("gpu=2, core=0.25").of(state) == pytest.approx(3.5)


@pytest.mark.parametrize("text", ["", "2.5", "gpu", "gpu=x", "gpu=-1", "gpu=nan", "gpu=inf", "cpu=1", "gpu=1,gpu=2"])
def test_what_is_no_price_is_refused(text):
    with pytest.raises(UsageError, match=r"no price per hour: write gpu=2\.5"):
        Price.parse(text)
