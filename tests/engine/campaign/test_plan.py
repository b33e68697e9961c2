"""A campaign file becomes a plan, or one line that says what is wrong with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.plan_file import read_plan, read_plans
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.gemm.terms import DType, Layout
from gemmtune.engine.scheduling.stopping import Limits
from gemmtune.engine.tables.loss_limits import LossLimits, RangeLimits

WHOLE = """\
space = ["triton_mm", "aten"]
sampler = "tpe"
pruner = ["static"]
objective = "latency"
budget = 12
seed = 9
batch = 3
seconds = 90.5
gpu_seconds = 360
regret = 0.02
problems = ["16x4096x4096:fp16:tn"]

[[problem]]
m = 1
n = 6144
k = 4096
dtype = "bf16"
layout = "nn"
weight = 2.5

[[problem]]
m = 8
n = 8
k = 8
a_dtype = "fp32"
b_dtype = "fp32"
out_dtype = "fp32"
allow_tf32 = "true"
"""


def plan(tmp_path, text: str) -> Plan:
    path = tmp_path / "c.toml"
    path.write_text(text, encoding="utf-8")
    return read_plan(path)


def test_every_key_is_read(tmp_path):
    read = plan(tmp_path, WHOLE)
    assert read == Plan(
        problems=(
            Problem.parse("16x4096x4096:fp16:tn"),
            Problem(1, 6144, 4096, b_layout=Layout.N),
            Problem.parse("8x8x8:tf32"),
        ),
        spaces=("triton_mm", "aten"),
        sampler="tpe",
        pruners=("static",),
        objective="latency",
        budget=12,
        seed=9,
        batch=3,
        limits=Limits(seconds=90.5, gpu_seconds=360.0, regret=0.02),
    )
    assert [problem.weight for problem in read.problems] == [1.0, 2.5, 1.0]
    assert gemm(read.problems[2]).a_dtype is DType.FP32


def test_what_a_file_leaves_out_is_the_default(tmp_path):
    assert plan(tmp_path, 'space = "aten"\npruner = "static"') == Plan(spaces=("aten",), pruners=("static",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("budge = 3", r"unknown key 'budge'; did you mean budget\? known: batch, batch_invariant, budget, .*, space"),
        ("budget = 0", r"budget=0 is not an integer from 1 on"),
        ("batch = -1", r"batch=-1 is not an integer from 1 on"),
        ("seed = -1", r"seed=-1 is not an integer from 0 on"),
        ("regret = 0", r"regret=0 is not a number above 0"),
        ("gpu_seconds = 'all'", r"gpu_seconds='all' is not a number"),
        ("seconds = true", r"seconds=True is not a number"),
        ("budget = '8'", r"budget='8' is not an integer"),
        ("budget = false", r"budget=False is not an integer"),
        ("sampler = ['tpe']", r"sampler=\['tpe'\] is not a text"),
        ("space = [1]", r"space=1 is not a text"),
        ("space = []", r"no space to search"),
        ("problem = 3", r"problem=3 is not a list of tables"),
        ("problem = [3]", r"problem 1=3 is not a table"),
        ("[problem]\nm = 1", r"problem=.* is not a list of tables"),
        ("problems = ['1x1x1', '1x1x1:bf16']", r"problem 1x1x1:bf16:nt is named 2 times; name it once"),
        ("[[problem]]\nm = 1.5\nn = 1\nk = 1", r"m=1.5 is not an integer"),
        ("[[problem]]\nm = 0\nn = 1\nk = 1", r"m=0 is not an integer from 1"),
        ("budget = 1\nbudget = 2", r"is not TOML"),
        ("margin = -0.01", r"margin=-0.01 is not a number from 0 on"),
        ("margin = nan", r"margin=nan is not a number"),
        ("portfolio = 3", r"portfolio=3 is not true, false or a table of worst and mean"),
        ("[portfolio]\nbest = 1", r"unknown key 'best' in portfolio; known: mean, worst"),
        ("[portfolio]\nworst = -1", r"portfolio.worst=-1 is not a number from 0 on"),
        ("[portfolio]\nmean = '1'", r"portfolio.mean='1' is not a number"),
        ("ranges = 3", r"ranges=3 is not true, false or a table of worst"),
        ("[ranges]\nbest = 1", r"unknown key 'best' in ranges; known: worst"),
        ("[ranges]\nworst = -1", r"ranges.worst=-1 is not a number from 0 on"),
        ("hold_out = ['8x8x8']", r"8x8x8:bf16:nt is held out, and there are no ranges to check: ask for ranges"),
        ("ranges = true\nproblems = ['8x8x8']\nhold_out = ['8x8x8']", r"problem 8x8x8:bf16:nt is named 2 times"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(tmp_path, text, said):
    with pytest.raises(UsageError, match=rf"^campaign .*c\.toml:? .*{said}"):
        plan(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("seed = 0", None),
        ("portfolio = false", None),
        ("portfolio = true", LossLimits(0.02, 0.005)),
        ("portfolio = { worst = 0.05 }", LossLimits(0.05, 0.005)),
        ("[portfolio]\nworst = 0.05\nmean = 0", LossLimits(0.05, 0.0)),
    ],
)
def test_a_portfolio_is_asked_for_with_or_without_limits(tmp_path, text, limits):
    assert plan(tmp_path, text).portfolio == limits


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match=r"no file or folder .*none\.toml is here"):
        read_plan(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="is an empty folder; a campaign file"):
        read_plan(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'sampler = "\xe9"')
    with pytest.raises(UsageError, match="is not text in UTF-8"):
        read_plan(tmp_path / "latin.toml")


@pytest.mark.parametrize("kernel", ["./evil.py:Evil", "{}/evil.py:Evil", "./evil.py:Evil:n=1"])
def test_a_kernel_in_the_place_of_a_campaign_is_refused_and_its_file_not_imported(tmp_path, monkeypatch, kernel):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("import pathlib; pathlib.Path('imported').touch()")
    text = f"triton:{kernel.format(tmp_path)}"
    with pytest.raises(UsageError, match=f"{re.escape(text)} is a problem and no campaign file"):
        read_plan(Path(text))
    assert not (tmp_path / "imported").exists()


def test_the_example_of_the_page_is_a_campaign(tmp_path):
    page = (Path(__file__).parents[3] / "docs/campaign-keys.md").read_text(encoding="utf-8")
    read = plan(tmp_path, page.split("```toml\n")[1].split("```")[0])
    assert {problem.weight for problem in read.problems} == {20}
    assert [problem.size for problem in read.problems if gemm(problem).dynamic_m] == [2, 64, 1024]
    assert [problem.size for problem in read.held_out] == [40]
    assert (read.budget, read.limits, read.ranges) == (48, Limits(seconds=1800), RangeLimits(0.02))


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("seed = 0", None),
        ("ranges = false", None),
        ("ranges = true", RangeLimits(0.02)),
        ("ranges = { worst = 0.05 }", RangeLimits(0.05)),
    ],
)
def test_ranges_are_asked_for_with_or_without_limits(tmp_path, text, limits):
    path = tmp_path / "campaign.toml"
    path.write_text(text)
    assert read_plan(path).ranges == limits


def test_a_problem_table_lists_several_m_and_held_out_ones(tmp_path):
    path = tmp_path / "campaign.toml"
    path.write_text(
        "ranges = true\nhold_out = ['5x8x8']\n"
        "[[problem]]\nm = [16, 64]\nhold_out = [40]\nn = 8\nk = 8\ndynamic_m = true\nweight = 2\n"
    )
    plan = read_plan(path)
    assert [p.name for p in plan.problems] == ["16x8x8:bf16:nt:dynamic_m=true", "64x8x8:bf16:nt:dynamic_m=true"]
    assert [p.name for p in plan.held_out] == ["5x8x8:bf16:nt", "40x8x8:bf16:nt:dynamic_m=true"]
    assert {p.weight for p in plan.problems} == {2.0}


def test_a_table_of_groups_of_k_lists_several_k_and_held_out_ones(tmp_path):
    path = tmp_path / "campaign.toml"
    table = (
        '[[problem]]\nkind = "grouped"\nform = "inner"\nk = [64, 256]\nhold_out = [128]\nm = 8\nn = 16\ngroups = 4\n'
    )
    path.write_text(f"ranges = true\n{table}")
    plan = read_plan(path)
    name = "grouped:inner:m8:g4:n16:k{}:bf16:tn"
    assert [p.name for p in plan.problems] == [name.format(k) for k in (64, 256)]
    assert [p.name for p in plan.held_out] == [name.format(128)]


MORE = {"spaces": (), "problems": (Problem(1, 2, 3), Problem(1, 2, 3, weight=2.0)), "held_out": (Problem(1, 2, 3),)}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"budget": 0}, "budget=0 is not an integer from 1 on"),
        ({"batch": 0}, "batch=0 is not an integer from 1 on"),
        ({"seed": -1}, "seed=-1 is not an integer from 0 on"),
        ({"margin": 1.0}, "margin=1 is 100%"),
        ({"margin": -0.1}, "margin=-0.1 is not a number from 0 on"),
        ({"spaces": ()}, "no space to search; the default is triton_mm"),
        ({"problems": MORE["problems"]}, "problem 1x2x3:bf16:nt is named 2 times; name it once, with the sum of its"),
        ({"problems": MORE["problems"][:1], "held_out": MORE["held_out"], "ranges": RangeLimits()}, "is named 2 times"),
        ({"held_out": MORE["held_out"]}, "1x2x3:bf16:nt is held out, and there are no ranges to check: ask for ranges"),
        ({"sampler": 5}, r"^sampler=5 is not of type str \| type\[Sampler\]$"),
        ({"spaces": "aten"}, r"^space='aten' is not of type tuple\[str, ...\]$"),
        ({"portfolio": {"worst": 0.1}}, r"^portfolio={'worst': 0.1} is not of type LossLimits \| None$"),
        ({"problems": ("1x2x3:bf16:nt",)}, r"^problems=\('1x2x3:bf16:nt',\) is not of type tuple\[Workload, ...\]$"),
        ({"limits": 3}, r"^limits=3 is not of type Limits$"),
        ({"sampler": "none_such"}, "none_such"),
        ({"objective": "none_such"}, "none_such"),
        ({"spaces": ("triton_mm", "none_such")}, "none_such"),
        ({"pruners": ("none_such",)}, "none_such"),
    ],
)
def test_a_plan_that_cannot_run_is_refused_before_it_loads_anything(changes, said):
    with pytest.raises(UsageError, match=said):
        Plan(**changes)


def test_a_plan_without_problems_has_the_vendor_library_and_one_score():
    plan = Plan(budget=1, batch=1, seed=0, margin=0.0)
    assert (plan.baselines, plan.scores, plan.margin) == (("aten",), 1, 0.0)
    assert list(plan.plugins.spaces) == ["aten", "triton_mm"]
    assert Plan(objective="latency_energy").scores == 2
    assert Plan(sampler=plan.plugins.sampler).plugins.sampler is plan.plugins.sampler


def written(folder, **texts: str) -> list[Path]:
    paths = [folder / f"{name}.toml" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def test_several_files_are_one_plan_whose_equal_problems_add_up(tmp_path):
    own = "[[problem]]\nm = 1\nn = 8\nk = 8\nweight = 2.5"
    more = "problems = ['4x8x8']\n[[problem]]\nm = [1, 2]\nn = 8\nk = 8\nweight = 4\nhold_out = [3]"
    paths = written(tmp_path, one=f"budget = 12\n{own}", two=f"seed = 3\nranges = true\n{more}", three=own)
    both = read_plans(paths)
    assert {each.name: each.weight for each in both.problems} == {
        "1x8x8:bf16:nt": 9.0,
        "4x8x8:bf16:nt": 1.0,
        "2x8x8:bf16:nt": 4.0,
    }
    assert [each.name for each in both.held_out] == ["3x8x8:bf16:nt"]
    assert (both.budget, both.seed, both.ranges) == (12, 3, RangeLimits())


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [
        ("budget = 64", "budget = 24", r"one\.toml has budget = 64, and .*two\.toml 24: .* the option --budget"),
        ("space = ['aten', 'triton_mm']", "space = 'aten'", r"one\.toml has space = aten, triton_mm, and .*two\.toml"),
        ("gpu_seconds = 3", "gpu_seconds = 4", r"the option --gpu-seconds"),
        ("ranges = true", "ranges = false", r"one\.toml has ranges = .*, and .*two\.toml None"),
        (
            "ranges = true\nhold_out = ['8x8x8']",
            "problems = ['8x8x8']",
            r"8x8x8:bf16:nt is held out in .*one\.toml and a problem to tune in .*two\.toml",
        ),
    ],
)
def test_files_that_contradict_each_other_are_named(tmp_path, one, two, said):
    with pytest.raises(UsageError, match=said):
        read_plans(written(tmp_path, one=one, two=two))


def test_files_may_differ_in_an_option_that_is_given(tmp_path):
    paths = written(tmp_path, one="budget = 64\nseed = 1", two="budget = 24\nseed = 1")
    assert read_plans(paths, settled=["budget"]).seed == 1
