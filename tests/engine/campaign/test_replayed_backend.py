"""A campaign that replays recorded landscapes reads what it asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.api.landscapes import landscapes
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.replayed_backend import recorded_of

RECORDED = landscapes()


@pytest.mark.parametrize("sizes", [(16,), (16, 17), ()], ids=["recorded", "one-is-not", "none-named"])
def test_the_landscapes_of_the_problems_are_read_or_all_if_one_is_not_recorded(sizes):
    problem = next(each.problem for each in RECORDED if each.problem.size == 16)
    plan = Plan(problems=tuple(replace(problem, m=m) for m in sizes))
    read = [(each.context["space"], each.problem) for each in recorded_of(plan)]
    assert read == [(x.context["space"], x.problem) for x in RECORDED if sizes != (16,) or x.problem == problem]
