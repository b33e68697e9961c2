"""The experiment on tables in a model holds out what no probe sees, and tells truly what a campaign knew."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gemmtune.engine.campaign.plan_file import read_plan
from gemmtune.engine.campaign.range_rounds import interior_problems, probe_problems

pytest.importorskip("torch")  # the block's


@pytest.fixture(scope="module")
def experiment(modules_of):
    return modules_of("tables", "problems", "block").problems


@pytest.fixture
def plan(experiment, tmp_path):
    path = tmp_path / "campaign.toml"
    path.write_text(experiment.campaign(16, 150))
    return read_plan(path)


def test_what_is_held_out_would_not_be_probed_and_lies_between_tuned_sizes(plan):
    assert len(plan.held_out) == 24
    assert not set(plan.held_out) & set(probe_problems(plan.problems))
    for problem in plan.held_out:
        sizes = [each.m for each in plan.problems if each.series == problem.series]
        assert min(sizes) < problem.m < max(sizes)


def test_between_any_two_tuned_sizes_some_are_held_out(experiment, plan):
    held_out = {problem.m for problem in plan.held_out if problem.n != experiment.FORUM[1]}
    assert all(any(less < m < more for m in held_out) for less, more in pairwise(experiment.TUNED))


def test_measured_as_says_what_the_campaign_knows_of_a_layers_product(experiment, plan):
    def of(problems):
        return {p.m for p in problems if (p.op, p.n) == ("mm", 6144)}  # qkv

    known = {"tuned": of(plan.problems), "held out": of(plan.held_out), "probed": of(probe_problems(plan.problems))}
    known["spot"] = of(interior_problems(plan.problems)).difference(*known.values())
    sizes = range(1, 5000)
    assert {name: {m for m in sizes if experiment.measured_as(m) == name} for name in known} == known
    assert {experiment.measured_as(m) for m in experiment.LAYER_SIZES} == {*known, "not measured"}
    assert {m for name in ("tuned", "held out") for m in known[name]} <= set(experiment.LAYER_SIZES)
