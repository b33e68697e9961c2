"""Captured products as a campaign that `tune` takes."""

from __future__ import annotations

import pytest

from gemmtune.engine.campaign.plan_file import read_plan
from gemmtune.engine.capture.captured import Captured, CapturedProduct, Unseen, merged
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.problem import Problem

MM, BIASED = Problem.parse("16x64x32:bf16:nn"), Problem.parse("16x64x32:fp16:nt:addmm:bias=matrix")
OPEN = Problem.parse("64x128x32:bf16:nt:dynamic_m=true")


def test_the_campaign_has_every_product_with_its_runs_as_weight(tmp_path):
    captured = Captured([CapturedProduct(MM, 3), CapturedProduct(BIASED, 0.5)], [Unseen("f", "g", 2)], "From a test.")
    path = tmp_path / "problems.toml"
    path.write_text(captured.to_toml(), encoding="utf-8")
    plan = read_plan(path)
    assert [(problem, problem.weight) for problem in plan.problems] == [(MM, 3), (BIASED, 0.5)]
    assert (plan.ranges, plan.budget) == (None, 24)
    assert "# Not to be tuned, 2 times: f (g)" in path.read_text(encoding="utf-8")


def test_a_product_is_tuned_with_each_of_its_epilogues_and_without_one_for_the_other_runs(tmp_path):
    chains = (("relu", 2), ("add(matrix).silu", 3), ("unreadable: atan, no known name", 1))
    path = tmp_path / "problems.toml"
    path.write_text(
        Captured([CapturedProduct(MM, 7, epilogues=chains)], [], "From a test.").to_toml(), encoding="utf-8"
    )
    plan = read_plan(path)
    assert [(problem.name, problem.weight) for problem in plan.problems] == [
        (f"{MM.name}:epilogue=relu", 2),
        (f"{MM.name}:epilogue=add(matrix).silu", 3),
        (MM.name, 2),
    ]
    assert "# 1 of them with the epilogue unreadable: atan, no known name" in path.read_text(encoding="utf-8")


def test_a_capture_without_products_is_no_campaign_of_the_recorded_problems(tmp_path):
    path = tmp_path / "problems.toml"
    path.write_text(Captured([], [Unseen("f", "g", 2)], "From a test.").to_toml(), encoding="utf-8")
    with pytest.raises(UsageError, match="has no problems"):
        read_plan(path)


def test_an_open_m_is_tuned_at_both_ends_and_a_few_sizes_between(tmp_path):
    product = CapturedProduct(OPEN, 10, m="s0", first=2, last=4096)
    path = tmp_path / "problems.toml"
    path.write_text(Captured([product], [], "From a test.").to_toml(), encoding="utf-8")
    plan = read_plan(path)
    assert [problem.m for problem in plan.problems] == [2, 4, 16, 64, 256, 1024, 4096]
    assert sum(problem.weight for problem in plan.problems) == pytest.approx(10)
    assert plan.ranges is not None
    multiples = CapturedProduct(OPEN, 1, m="128*s0", first=256, last=128 * 32, step=128)
    assert all(size % 128 == 0 for size in multiples.sizes)
    assert multiples.sizes[0] == 256


def test_equal_products_add_up_within_a_call_and_keep_the_most_runs_between_calls():
    one = CapturedProduct(MM, 3, epilogues=(("relu", 2), ("gelu", 1)))
    two = CapturedProduct(MM, 4, epilogues=(("relu", 1),))
    work = [Unseen("conv", "a library's kernel", 1), Unseen("conv", "a library's kernel", 2)]
    (added,), (calls,) = merged([one, two], work)
    assert (added.count, dict(added.epilogues), calls.count) == (7, {"relu": 3, "gelu": 1}, 3)
    (most,), (calls,) = merged([one, two], work, max)
    assert (most.count, dict(most.epilogues), calls.count) == (4, {"relu": 2, "gelu": 1}, 2)
