"""Names and numbers as people write them, and the known ones that a mistyped one is near to."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from gemmtune.engine.cli.options import fraction, time_span
from gemmtune.engine.records.errors import did_you_mean

DECODE = "16x4096x4096:bf16:nt"
MOE = "vllm_moe:m64:e128:k8:h2048:n768:bf16"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tune", "--space", "vllm_moe", "--problem", DECODE], ["vllm_moe takes problems of kind vllm_moe", "a GEMM"]),
        (["tune", "--space", "vllm_moe", "--space", "triton_mm", "--problem", DECODE], ["space vllm_moe takes"]),
        (["tune", "--space", "triton_mm", "--problem", MOE], ["triton_mm takes GEMMs (MxNxK)", "space vllm_moe"]),
        (["tune", "--space", "triton_mm", "--problem", MOE, "--device", "B200"], ["triton_mm takes GEMMs"]),
        (["sweep", "--space", "sglang_moe", "--problem", DECODE], ["sglang_moe takes", "a GEMM"]),
        (["list", "spaces", "vllm_moe", "--problem", DECODE], ["vllm_moe takes problems of kind vllm_moe", "a GEMM"]),
        (
            ["tune", "--space", "cute_gemv", "--problem", DECODE],
            ["nothing is recorded in space cute_gemv", "the GPU"],
        ),
        (["tune", "--device", "cuda:0"], ["'cuda:0' names a GPU of this machine", "H200"]),
        (["tune", "--device", "H20O"], ["did you mean H200?"]),
        (
            ["tune", "--device", "H100"],
            ["no H100-SXM to tune on", "run this where such a GPU is, or leave out --device"],
        ),
        (["tune", "--sampler", "evolutoin"], ["did you mean evolution?"]),
        (["tune", "--objective", "latencey"], ["did you mean latency?"]),
        (["tune", "--problem", f"{DECODE},{DECODE}"], ["names several problems", "--problem of its own"]),
        (["tune", "--margin", "2x"], ["'2x' is no fraction", "2%"]),
        (["tune", "--seconds", "5y"], ["'5y' is no time", "5m"]),
        (["tune", "upper.toml"], ["unknown problem field 'K'", "did you mean k?"]),
        (["tune", "plural.toml"], ["[[problems]] is no table", "[[problem]]"]),
        (["tune", "below.toml"], ["'budget' stands in [[problem]]", "before the first one"]),
        (["list", "sampelr"], ["did you mean samplers?"]),
        (["capture", "m:build", "--input", "16,1024", "--device", "H200"], ["malformed input '16,1024'"]),
        (["capture", "m:build", "--input", "flaot[16]", "--device", "H200"], ["did you mean float?"]),
        (["capture", "sub/m.py:build", "--device", "H200"], ["names a file", "module, m:build, in the file's folder"]),
        (["capture", "m:Block.forward", "--device", "H200"], ["names forward of Block", "m:Block"]),
        (["bench", "m:build", "--arms", "compiel"], ["did you mean compile?"]),
        (["verify", "out"], ["verify measures, and no NVIDIA GPU", "--replay"]),
        (["sweep", "--problem", DECODE], ["sweep measures, and no NVIDIA GPU"]),
    ],
)
def test_a_mistake_names_what_was_meant(refused, arguments, said):
    Path("upper.toml").write_text("[[problem]]\nM = 16\nN = 1\nK = 1\n")
    Path("plural.toml").write_text("[[problems]]\nm = 1\n")
    Path("below.toml").write_text("[[problem]]\nm = 16\nn = 1\nk = 1\nbudget = 4\n")
    refused(arguments, *said)


def test_a_callable_that_is_not_there_names_the_nearest(run, refusal):
    pytest.importorskip("torch")
    warnings.simplefilter("ignore")  # torch's own
    Path("built_here.py").write_text("def build():\n    pass\n")
    refusal(run("capture", "built_here:biuld", "--device", "H200"), "import built_here:biuld", "did you mean build?")


def test_a_list_says_what_each_is(run):
    (line,) = [x for x in run("list", "sampler").out.splitlines() if x.startswith("random")]
    assert "random order" in line
    everything = run("list", "--json").record
    assert list(everything) == ["samplers", "spaces", "devices", "objectives", "landscapes", "pruners", "exporters"]
    assert all(each["meaning"] for each in everything["spaces"])


def test_help_and_version_have_their_usual_names(run):
    assert run("help", "diff").out == run("--quiet", "help", "diff").out == run("diff", "--help").out
    assert run("-V").out == run("--version").out


@pytest.mark.parametrize(("text", "value"), [("0.02", 0.02), ("2%", 0.02), (" 2.5 %", 0.025)])
def test_a_fraction_may_be_a_percentage(text, value):
    assert fraction(text) == pytest.approx(value)


@pytest.mark.parametrize(("text", "seconds"), [("300", 300), ("5m", 300), ("1.5h", 5400), ("10s", 10), ("1e3", 1000)])
def test_a_time_may_have_a_unit(text, seconds):
    assert time_span(text) == seconds


def test_the_nearest_name_ignores_case_and_dashes():
    assert did_you_mean("HOLD-OUT", ["hold_out", "m"]) == "did you mean hold_out? "
    assert did_you_mean("abacus", ["inductor", "cute"]) == ""
