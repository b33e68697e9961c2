"""Captured products as a campaign that `tune` takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.api.plans import read_plan
from gemmtune.engine.consumers.inductor.capture.captured import Captured, CapturedProduct, Unseen, merged
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.gemm.problem import Problem

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


def test_a_product_of_an_open_and_of_a_fixed_m_is_one_problem_with_the_sum_of_its_runs(tmp_path):
    several = CapturedProduct(OPEN, 6, m="s0", first=2, last=16)
    captured = Captured([several, CapturedProduct(replace(OPEN, m=4), 3)], [], "From a test.")
    path = tmp_path / "problems.toml"
    path.write_text(captured.to_toml(), encoding="utf-8")
    for problems in (captured.problems, read_plan(path).problems):
        assert {problem.size: problem.weight for problem in problems} == {2: 2, 4: 5, 16: 2}


def test_the_campaign_has_the_strides_and_scalars_of_a_product(tmp_path):
    names = (
        "8x16x64x32:bf16:nn:bmm:lda=96:batch_stride_b=0",
        "8x16x64x32:bf16:nt:baddbmm:bias=vectors:alpha=0.1:beta=0",
    )
    products = [CapturedProduct(Problem.parse(name), 1) for name in names]
    path = tmp_path / "problems.toml"
    path.write_text(Captured(products, [], "From a test.").to_toml(), encoding="utf-8")
    assert tuple(problem.name for problem in read_plan(path).problems) == names


def test_an_open_m_is_tuned_at_both_ends_and_a_few_sizes_between(tmp_path):
    product = CapturedProduct(OPEN, 10, m="s0", first=2, last=4096)
    path = tmp_path / "problems.toml"
    path.write_text(Captured([product], [], "From a test.").to_toml(), encoding="utf-8")
    plan = read_plan(path)
    assert [problem.size for problem in plan.problems] == [2, 4, 16, 64, 256, 1024, 4096]
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


@pytest.mark.parametrize(
    ("first", "last", "step", "sizes"),
    [
        (2, 8, 1, (2, 4, 8)),
        (2, 7, 1, (2, 7)),  # 4 is less than a factor of two from 7
        (3, 8, 1, (3, 8)),
        (2, None, 1, (2, 4, 16, 64, 256, 1024, 4096, 8192)),
        (10_000, None, 1, (10_000,)),
        (4_000, 2**40, 1, (4_000, 8192)),  # no problem has so many rows
        (2, 130, 64, (64, 128)),
        (1, 1, 1, (1,)),
    ],
)
def test_sizes_that_stand_for_a_range_are_a_factor_of_four_apart(first, last, step, sizes):
    assert CapturedProduct(OPEN, 1, m="s0", first=first, last=last, step=step).sizes == sizes


def test_a_product_without_runs_beside_its_epilogues_is_not_tuned_alone():
    product = CapturedProduct(MM, 2, epilogues=(("relu", 1.5), ("gelu", 0.5)))
    assert [each.count for each in product.variants] == [1.5, 0.5]


def test_ranges_of_equal_products_are_joined():
    one = CapturedProduct(OPEN, 1, m="s0", first=4, last=64, step=2)
    two = CapturedProduct(OPEN, 2, m="s1", first=2, last=128, step=4)
    endless = CapturedProduct(OPEN, 2, m="s1", first=8)
    ([joined], _), ([open_end], _) = merged([one, two], []), merged([one, endless], [])
    assert (joined.first, joined.last, joined.step, joined.count) == (2, 128, 2, 3)
    assert (open_end.first, open_end.last) == (4, None)
    assert len(merged([one, CapturedProduct(OPEN, 1)], [])[0]) == 2  # a fixed m is another product


def test_the_rarest_work_that_no_row_serves_stands_last():
    work = [Unseen("a", "r", 1), Unseen("b", "r", 3), Unseen("c", "r", 3)]
    assert [each.operation for each in merged([], work)[1]] == ["b", "c", "a"]


@pytest.mark.parametrize(("m", "hint"), [(64, True), (65, False)])
def test_few_rows_are_told_of_kernels_for_few_rows(m, hint):
    product = CapturedProduct(Problem(m, 64, 32), 1)
    assert ("cute_splitk" in Captured([product], [], "test").to_toml()) is hint


def test_the_campaign_file_says_what_was_found_and_what_each_problem_is_for():
    fixed = CapturedProduct(BIASED, 3, epilogues=(("relu", 2), ("unreadable: atan", 1)))
    several = CapturedProduct(OPEN, 6, m="s0", first=2, last=16)
    captured = Captured([fixed, several], [Unseen("conv", "a library's kernel", 2)], "From net.py.", "2.13.0")
    assert captured.to_toml().splitlines() == [
        "# From net.py.",
        "# Lowered by torch 2.13.0.",
        "# Distinct products: 2, with 9 runs.",
        "# Not to be tuned, 2 times: conv (a library's kernel)",
        "",
        "budget = 24",
        "",
        "# Products with an open m get rows for ranges of m.",
        "ranges = true",
        "",
        "# On Hopper and Blackwell, kernels for few rows are often faster; they need the extra cute.",
        '# space = ["triton_mm", "cute_gemv", "cute_splitk"]',
        "",
        "# 16x64x32:fp16:nt:addmm:epilogue=relu:bias=matrix, 2 runs",
        "[[problem]]",
        *("m = 16", "n = 64", "k = 32", 'op = "addmm"'),
        *('a_dtype = "fp16"', 'b_dtype = "fp16"', 'out_dtype = "fp16"', 'epilogue = "relu"', 'bias = "matrix"'),
        "weight = 2",
        "",
        "# 16x64x32:fp16:nt:addmm:bias=matrix, 1 run",
        "# 1 of them with the epilogue unreadable: atan",
        "[[problem]]",
        *("m = 16", "n = 64", "k = 32", 'op = "addmm"'),
        *('a_dtype = "fp16"', 'b_dtype = "fp16"', 'out_dtype = "fp16"', 'bias = "matrix"'),
        "weight = 1",
        "",
        "# 64x128x32:bf16:nt:dynamic_m=true, 6 runs, m from 2 to 16",
        "[[problem]]",
        *("m = [2, 4, 16]", "n = 128", "k = 32", "dynamic_m = true"),
        "weight = 2",
    ]


def test_equal_products_of_two_graphs_share_a_divisor_of_every_m():
    one, other = (CapturedProduct(OPEN, 1, m="s0", first=12, last=120, step=step) for step in (4, 6))
    ((joined,), _) = merged([one, other], [])
    assert joined.step == 2
