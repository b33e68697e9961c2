"""On a GPU forward and backward run the rows' kernels, and nothing is benchmarked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from gemmtune.engine.api.output_folder import write_all
from gemmtune.engine.consumers.inductor.exporter import InductorExporter
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row
from gemmtune.engine.testing.exporter_conformance import example_table

pytestmark = pytest.mark.gpu

FORWARD = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 64, "GROUP_M": 4, "num_stages": 3, "num_warps": 4}
BACKWARD = {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 128, "GROUP_M": 8, "num_stages": 2, "num_warps": 4}


@pytest.fixture(scope="module")
def gpu_name():
    if find_spec("torch") is None or find_spec("triton") is None:
        pytest.skip("torch or triton is not installed")
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA GPU on this machine")
    return torch.cuda.get_device_name()


def choice(space, config):
    return Choice(space, Config(config), 100.0, 99.0, 101.0, 1, Evidence.MEASURED, "by hand", "events-cold-l2")


def row(problem, space, config):
    return Row(Problem.parse(problem), (choice(space, config),), None, 0.0, ())


ROWS = (
    row("256x384x512:bf16:nt", "triton_mm", FORWARD),  # x @ w.t()
    row("256x512x384:bf16:nn", "triton_mm", BACKWARD),  # the gradient of x, compiled in autograd's thread
    row("384x512x256:bf16:tn", "aten", {}),  # the gradient of w
)


def test_forward_and_backward_run_the_rows_and_nothing_is_benchmarked(gpu_name, tmp_path):
    report = probed(gpu_name, tmp_path, "inductor_gpu_probe.py", ROWS, ())
    assert report["benchmarks"] == {}
    for tiles in (FORWARD, BACKWARD):
        for block in ("BLOCK_M", "BLOCK_N", "BLOCK_K"):
            assert f"{block} : tl.constexpr = {tiles[block]}" in report["code"]
    assert report["code"].count("extern_kernels.mm(") == 1
    assert max(report["errors"]) < 4e-3


def test_each_gpu_runs_the_row_while_another_one_is_current(gpu_name, tmp_path):
    found = probed(gpu_name, tmp_path, "inductor_gpu_probe.py", ROWS, ())["elsewhere"]
    if not found:
        pytest.skip(f"needs two GPUs: here is one {gpu_name}")
    assert all(f"BLOCK_M : tl.constexpr = {FORWARD['BLOCK_M']}" in each["code"] for each in found)
    assert max(each["error"] for each in found) < 4e-3


def test_a_row_of_an_epilogue_runs_fused_in_torch_compile(gpu_name, tmp_path):
    rows = (
        row("256x384x512:bf16:nt:epilogue=silu.mul(matrix)", "triton_mm", FORWARD),
        row("256x384x512:bf16:nt", "triton_mm", BACKWARD),
    )
    report = probed(gpu_name, tmp_path, "inductor_epilogue_probe.py", rows, ())
    assert report["benchmarks"] == {}
    assert max(report["errors"].values()) < 8e-3
    fused, cheap, apart = (report["kernels"][name] for name in ("silu_mul", "relu", "gelu"))
    assert fused == ["triton_tem"]
    assert cheap == ["triton_tem"]  # the plain row has room
    assert apart == ["triton_tem", "triton_poi"]


def test_large_kernels_alone_descend_when_they_first_run(gpu_name, tmp_path):
    found = probed(gpu_name, tmp_path, "inductor_large_probe.py", (row("256x384x512:bf16:nt", "aten", {}),), ())
    assert found["small"]["timed"] == 0
    assert found["large"]["timed"] > 1
    assert max(each["error"] for each in found.values()) < 1e-6


def ranges():
    def ranged(first, last, config):
        problem = Problem.parse(f"{last}x384x512:bf16:nt:addmm:dynamic_m=true")
        return RangeRow(problem, first, last, choice("triton_mm", config), ((last, 0.0),))

    return ranged(2, 64, {**FORWARD, "BLOCK_M": 16, "BLOCK_N": 32}), ranged(65, 256, FORWARD)


def test_a_table_serves_torch_compile_with_a_dynamic_m(gpu_name, tmp_path):
    found = probed(gpu_name, tmp_path, "inductor_ways_probe.py", (), ranges(), "compiled")
    assert {m: each["benchmarks"] for m, each in found.items()} == {m: {} for m in found}
    assert {m: each["graphs"] for m, each in found.items()} == {
        "16": 1,
        "32": 0,
        "100": 1,
        "200": 0,
        "60": 0,
        "1000": 1,
    }
    assert [found[m]["block_m"] for m in ("16", "100", "1000")] == [16, FORWARD["BLOCK_M"], None]
    assert max(each["error"] for each in found.values()) < 8e-3


def test_a_program_of_torch_export_compiles_with_a_table(gpu_name, tmp_path):
    rows = (row("128x384x512:bf16:nt:addmm", "triton_mm", FORWARD),)
    found = probed(gpu_name, tmp_path, "inductor_ways_probe.py", rows, ranges(), "exported")
    assert (found["benchmarks"], found["block_m"]) == ({}, FORWARD["BLOCK_M"])
    assert found["error"] < 8e-3


@pytest.mark.timeout(600)  # AOTInductor compiles C++, of two packages
def test_a_table_serves_aotinductor(gpu_name, tmp_path):
    (tmp_path / "stock").mkdir()
    stock = run(tmp_path / "stock", "inductor_ways_probe.py", "stock")
    if stock.returncode != 0:
        stages = [line for line in stock.stderr.splitlines() if line.startswith("stage: ")]
        fatal = [line for line in stock.stderr.splitlines() if line.startswith("Fatal")]
        died = "; ".join((*stages[-1:], *(fatal or stock.stderr.splitlines()[-1:])))
        pytest.skip(
            f"this host's AOTInductor makes no package that loads: one of relu, without gemmtune, ended with status "
            f"{stock.returncode} ({died}); `gemmtune doctor` says whether g++ lacks a shared libstdc++"
        )
    report = probed(gpu_name, tmp_path, "inductor_ways_probe.py", (), ranges(), "ahead")
    assert report["benchmarks"] == {}
    assert report["error"] < 8e-3


def probed(gpu_name, folder, probe, rows, ranges, *arguments):
    """Return a probe's report on an export for this GPU."""
    device = replace(example_table().device, name=gpu_name)
    table = replace(example_table(), device=device, rows=rows, ranges=ranges)
    write_all(InductorExporter().export(table), folder)
    done = run(folder, probe, *arguments)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stderr[-12000:]}"  # faulthandler's list is long
    sys.stderr.write(done.stderr)  # pytest shows it of a test that fails: the stages, and why a graph did not serve
    return json.loads(done.stdout.splitlines()[-1])


def run(folder, probe, *arguments):
    """Run a probe in its own process with its own caches."""
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TRITON_CACHE_DIR": str(folder / "triton")}
    return subprocess.run(
        [sys.executable, str(Path(__file__).with_name(probe)), str(folder), *arguments],
        env={**os.environ, **caches, "TORCH_LOGS": "recompiles"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
