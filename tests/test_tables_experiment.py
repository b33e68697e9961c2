"""The experiment on tables in a model holds out what no probe sees."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gemmtune.engine.campaign.plan_file import read_plan
from gemmtune.engine.campaign.rounds.ranges import probe_problems

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
