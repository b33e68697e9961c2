"""`gemmtune check`: real builds without a GPU, and launches through Triton's own decorators."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed")

from gemmtune.spaces.triton.definition import load_definition

pytestmark = pytest.mark.slow(10, together="probes")

KERNEL = """
import torch
import triton
import triton.language as tl

{before}

@triton.jit
def helper(x, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK <= {most},
                     "too wide")
    return x

{decorators}
@triton.jit
def scale(out, x, n, {parameters}BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, helper(tl.load(x + at, mask=at < n), BLOCK), mask=at < n)

class Scale:
    kernel = scale
    params = {{"BLOCK": (256, 512, 1024), "num_warps": (4, 8)}}
    cases = {{"small": {{"n": 4096}}, "large": {{"n": 65536}}}}
    outputs = ("out",)
    {members}
    def arguments(self, case, make):
        return {{"out": make.empty((case["n"],)), "x": make.normal((case["n"],)), "n": case["n"], {given}}}
    def grid(self, case, meta):
        return (triton.cdiv(case["n"], meta["BLOCK"]),)
    def reference(self, case, arguments):
        return arguments["x"]
"""
AUTOTUNED = "@triton.autotune([triton.Config({'BLOCK': 256}), triton.Config({'BLOCK': 512})], key=['n'])"
EVEN = "@triton.heuristics({'EVEN': lambda given: given['n'] % 256 == 0})\n" + AUTOTUNED.replace("'n'", "'n', 'EVEN'")
DOUBLED = """
class Doubled:
    def __init__(self, fn):
        self.fn = fn
    def __getitem__(self, grid):
        return lambda out, x, n, **named: self.fn[grid](out, x, 2 * n, **named)
"""


@pytest.fixture
def check(run, tmp_path):
    """Return a function that checks a class with its parts changed, and returns what `--json` printed."""

    def ran(status: int, *options: str, **change: str):
        parts = {"before": "", "most": "1024", "decorators": AUTOTUNED, "parameters": "", "members": "", "given": ""}
        (tmp_path / "scale.py").write_text(KERNEL.format(**parts | change))
        done = run("check", "./scale.py:Scale", "--configs", "2", "--json", *options)
        assert done.status == status, done.out + done.err
        return done.record

    return ran


ASKS = """
def prune(configs, named_args, **_):
    device = torch.cuda.current_device()
    most = triton.runtime.driver.active.utils.get_device_properties(device)["max_shared_mem"]
    return configs if (torch.cuda.get_device_capability(), most) == ((9, 0), 232448) else []

class Entry(triton.KernelInterface):
    def __init__(self, fn):
        self.fn, self.arg_names = fn, fn.arg_names
    def run(self, *arguments, **named):
        torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
        return self.fn.run(*arguments, **named)
"""


def test_a_program_that_asks_for_its_gpu_is_answered_for_the_target(check):
    asks = AUTOTUNED.replace("key=", "prune_configs_by={'early_config_prune': prune}, key=")
    found = check(0, before=ASKS, decorators=f"@Entry\n{asks}")
    assert [launch["hit"] for launch in found["launches"]] == [True, True]


def test_a_good_kernel_builds_and_hits_every_row(check):
    found = check(0)
    assert found["holds"] is True
    assert [build["space"] for build in found["builds"]] == ["triton_default", *2 * ["triton_kernel"]] * 2
    assert len({str((build["problem"], build["config"])) for build in found["builds"]}) == 6, "none is built twice"
    assert all(build["registers"] > 0 and build["reason"] == "" for build in found["builds"])
    small, large = (launch["config"] for launch in found["launches"])
    assert (small["BLOCK"], large["BLOCK"]) == (256, 512), "each case runs the config of its own row"
    tuner = load_definition(Path("scale.py").resolve(), "Scale").kernel
    assert (len(tuner.configs), tuner.cache, "run" in vars(tuner)) == (2, {}, False), "the kernel is as it was"


@pytest.mark.parametrize(
    "decorators",
    ["", EVEN],
    ids=["without an autotuner", "heuristics above, their value in the key"],
)
def test_other_decorators_hit_too(check, decorators):
    found = check(0, decorators=decorators, parameters="EVEN: tl.constexpr, " if decorators else "")
    assert all(launch["hit"] for launch in found["launches"])


def test_a_program_that_passes_other_numbers_misses(check):
    found = check(1, before=DOUBLED, decorators=f"@Doubled\n{AUTOTUNED}")
    assert [launch["hit"] for launch in found["launches"]] == [False, False]
    assert "no row serves scale(8192, torch.bfloat16, torch.bfloat16)" in found["launches"][0]["reason"]
    assert not any(build["reason"] for build in found["builds"])


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ("arguments['x'].double()[1:]", "reference gives out the shape (4095,)"),
        ("{'y': arguments['x']}", "reference does not give one tensor per output, and no other: out"),
        ("arguments['x'] @ arguments['x'][:3]", "reference failed: RuntimeError"),
        ("arguments['x'] * arguments['x'].sum().item() + arguments['w']", "reference failed: KeyError: 'w'"),
        ("torch.zeros(4096 // int(arguments['x'].max().item() + 1))", "reference gives out the shape (2048,)"),
    ],
)
def test_a_wrong_reference_is_named_before_a_gpu_runs_it(tmp_path, values, reason):
    parts = {"before": "", "most": "1024", "decorators": AUTOTUNED, "parameters": "", "members": "", "given": ""}
    (tmp_path / "wrong.py").write_text(KERNEL.format(**parts).replace('return arguments["x"]', f"return {values}"))
    assert reason in load_definition(tmp_path / "wrong.py", "Scale").reference_fault({"n": 4096})


def test_a_wrong_reference_fails_the_check_that_builds_all(check):
    found = check(1, members="outputs = ('out', 'x')\n    restore = ('x',)\n")
    assert [launch["reason"] for launch in found["launches"]] == 2 * [
        "Scale of scale.py: reference does not give one tensor per output, and no other: out, x"
    ]


def test_a_key_that_no_table_holds_is_refused_by_the_loader(check):
    found = check(1, decorators=AUTOTUNED.replace("'n'", "'x'"))
    assert "the loader refuses: ValueError: the autotuner's key names x" in found["launches"][0]["reason"]


def test_a_failed_assertion_is_named_and_where_nothing_builds_nothing_is_launched(check):
    found = check(1, most="1")
    reasons = {build["reason"] for build in found["builds"]}
    assert reasons == {
        "CompileTimeAssertionFailure: at 2:4: … tl.static_assert(BLOCK <= 1, 'too wide') … too wide",
    }
    assert {launch["reason"] for launch in found["launches"]} == {"no config of it builds"}


PRUNE = "prune_configs_by={'early_config_prune': lambda configs, *_, **__: configs[1:]}"
WIDE = ", ".join(f"triton.Config({{'BLOCK': {block}}})" for block in (64, 1024, 512, 256))
PRUNED = f"@triton.autotune([{WIDE}], key=['n'], {PRUNE})"


def test_the_default_is_the_first_config_that_is_kept_and_builds(run, check):
    assert check(0, most="512", decorators=PRUNED)["builds"][0]["reason"] == ""
    ran = run("check", "./scale.py:Scale:n=4096", "--configs", "1")
    assert "default BLOCK=512 num_warps=4 num_stages=3" in ran.out


def test_the_default_of_the_class_stays(check):
    own = "default = {'BLOCK': 1024, 'num_warps': 4}"
    assert "too wide" in check(0, most="512", members=own, decorators=PRUNED)["builds"][0]["reason"]


def test_one_case_is_named_and_other_uses_are_refused(run, refusal, check):
    check(0)
    one = run("check", "./scale.py:Scale:n=4096", "--configs", "1", "--device", "L40S")
    assert (one.status, one.out.count("hit"), "NVIDIA L40S" in one.out) == (0, 1, True)
    refusal(run("check", "./scale.py:Scale", "--problem", "16x16x16"), "has its own cases")
    refusal(run("check", "triton_mm"), "--problem")
    refusal(run("check", "./scale.py"), "name the class in it: gemmtune check FILE.py:CLASS")
    refusal(run("check", "scale:Scale"), "a class is read from its file: gemmtune check FILE.py:CLASS")
    refusal(run("check", "triton_nn", "--problem", "16x16x16"), "no space 'triton_nn'")


def test_a_space_builds_for_a_problem_and_a_gpu_that_is_not_here(run):
    ran = run("check", "triton_mm", "--problem", "16x256x256:bf16:nt", "--device", "B200", "--configs", "2", "--json")
    assert ran.status == 0, ran.err
    library, *built = ran.record["builds"]
    assert (library["space"], library["registers"], ran.record["launches"]) == ("aten", None, [])
    assert all(build["registers"] > 0 and build["shared_bytes"] > 0 for build in built)
    assert len(built) == 2
    assert not Path("out").exists()


def test_a_space_without_a_config_for_a_problem_is_refused(run, refusal):
    pytest.importorskip("cutlass", reason="needs gemmtune[cute]")
    ran = run("check", "cute_splitk", "--problem", "2048x4096x4096:bf16:nt", "--device", "B200")
    refusal(ran, "space cute_splitk has no config for 2048x4096x4096:bf16:nt", "m 2048 > 64, the most rows")


ROWS = """
import triton
import triton.language as tl

@triton.jit
def rms_norm_kernel(y_ptr, x_ptr, w_ptr, stride_y, stride_x, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    mean = tl.sum(x * x, axis=0) / n_cols
    y = x * tl.rsqrt(mean + eps) * tl.load(w_ptr + cols, mask=cols < n_cols)
    tl.store(y_ptr + row * stride_y + cols, y, mask=cols < n_cols)
"""


@pytest.mark.parametrize("named", ["rows:rms_norm_kernel", "./rows.py:rms_norm_kernel"])
def test_a_draft_is_written_that_check_refuses_until_it_is_filled_in(run, refusal, named, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "rows", raising=False)
    Path("rows.py").write_text(ROWS)
    draft = Path("rms_norm_kernel_adapter.py")
    written = run("check", "--draft", named)
    assert (written.status, written.out) == (
        0,
        f"{draft}: 2 to fill in, below TODO(gemmtune); then gemmtune check {draft}:RmsNorm\n",
    )
    refusal(run("check", f"{draft}:RmsNorm"), "values to try, and the config", "sizes that your program runs")
    refusal(run("check", "--draft", named), f"{draft} is there already")
    filled = [line for line in draft.read_text().splitlines() if "# TODO(gemmtune)" not in line]
    Path("filled.py").write_text("\n".join(filled))
    checked = run("check", "filled.py:RmsNorm", "--configs", "1", "--json")
    assert (checked.status, checked.record["holds"]) == (0, True), checked.err
    refusal(
        run("check", "--draft", "./rows.py:rms_norm_kernel", "--out", "elsewhere/draft.py"), "the draft imports rows.py"
    )
