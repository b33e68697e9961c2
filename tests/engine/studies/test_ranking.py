"""Ranks and tests of samplers over landscapes."""

from __future__ import annotations

import numpy as np
import pytest

from gemmtune.engine.studies.intervals import mean_interval
from gemmtune.engine.studies.ranking import ranking


def test_ranks_are_means_over_the_landscapes_and_equals_share_theirs():
    found = ranking({"a": np.array([[0.9], [0.5], [0.8]]), "b": np.array([[0.8], [0.5], [0.9]]), "c": np.zeros((3, 1))})
    assert found.ranks == {"a": 1.5, "b": 1.5, "c": 3.0}
    assert found.critical_difference == pytest.approx(2.344 * (12 / 18) ** 0.5, abs=1e-3)  # Demšar's table
    twelve = ranking({str(number): np.full((4, 1), number) for number in range(12)})
    assert twelve.critical_difference == pytest.approx(3.268 * (156 / 24) ** 0.5, abs=1e-3)
    assert all(pair.p is pair.low is None for pair in found.pairs)
    assert ranking({"a": np.zeros((3, 1))}) is None


def test_a_pair_is_tested_over_landscapes_and_its_lead_is_paired_by_seed():
    rng = np.random.default_rng(0)
    worse = rng.uniform(0.5, 0.6, (8, 10))
    lead = rng.uniform(0.01, 0.03, (8, 10))
    found = ranking({"worse": worse, "better": worse + lead, "equal": worse})
    pairs = {(pair.arm, pair.other): pair for pair in found.pairs}
    first = pairs["better", "worse"]
    assert first.p == pytest.approx(3 * 2 / 2**8)  # each of 8 landscapes says so; the smallest of three p values
    assert (first.low, first.high) == pytest.approx(mean_interval(lead.mean(axis=0), len(lead)))
    assert next(pair.p for pair in found.pairs if {pair.arm, pair.other} == {"worse", "equal"}) == 1
