"""One config on a real GPU: measured beside the row and the library, and run as the script that a table gives."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import gemmtune as gt
from gemmtune.engine.api.plans import parse_problems
from gemmtune.engine.toolchain.gpu_info import present_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(present_device() is None, reason="needs a CUDA GPU and gemmtune[triton]"),
    pytest.mark.timeout(600),
]

PROBLEM = "16x4096x4096:bf16:nt"
SOFTMAX = Path(__file__).parents[3] / "docs/examples/own_kernel/softmax.py"
SLOW = "BLOCK_M=16 BLOCK_N=32 BLOCK_K=32 GROUP_M=8 num_stages=1 num_warps=2"
MINE = "BLOCK_M=16 BLOCK_N=64 BLOCK_K=128 GROUP_M=8 num_stages=5 num_warps=4"


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    """A folder into which a GEMM and the cases of a kernel were tuned."""
    folder = tmp_path_factory.mktemp("configs") / "out"
    gt.tune([PROBLEM, f"triton:{SOFTMAX}:Softmax"], space=["triton_mm", "triton_kernel"], budget=8, out=folder)
    return folder


def test_own_configs_meet_the_row_and_the_library_in_paired_rounds(out):
    found = gt.measure(PROBLEM, [MINE, SLOW], out=out)
    (comparison,) = found.comparisons
    roles = [kernel.role.value for kernel in comparison.kernels]
    assert found.holds
    assert (roles[:3], roles[-1]) == (["yours", "yours", "row"], "baseline")
    for kernel in comparison.kernels:
        assert kernel.contender.finalist is not None, kernel
        assert kernel.choice.low_ns <= kernel.choice.time_ns <= kernel.choice.high_ns
        assert kernel.task.is_baseline or kernel.measurement.resources.registers > 0
    mine, slow, *_ = comparison.kernels
    assert comparison.ranking.beats(mine.contender, slow.contender) or mine.choice.time_ns < slow.choice.time_ns
    assert slow.contender.finalist.behind[0] > 0
    assert gt.measure(PROBLEM, [MINE, SLOW], out=out).summary() == found.summary()  # the database knows it


def test_a_config_of_an_own_kernel_meets_its_row_and_its_default(out):
    found = gt.measure(f"triton:{SOFTMAX}:Softmax", "ROWS=1 STEPS=8 num_warps=4 num_stages=1", out=out)
    assert len(found.comparisons) == 2
    for comparison in found.comparisons:
        roles = {kernel.role.value for kernel in comparison.kernels}
        assert {"yours", "baseline"} <= roles
        assert comparison.ranking.final is not None


@pytest.mark.parametrize("case", [PROBLEM, f"triton:{SOFTMAX}:Softmax:rows=4096,columns=8192"])
def test_the_program_of_a_row_runs_and_its_result_is_right(out, tmp_path, case):
    table = gt.read_table(out)
    (problem,) = parse_problems(case)
    row = next(row for row in table.rows if row.problem == problem)
    searched = replace(row, choices=(row.kernel,))  # the library may ship
    program = tmp_path / "kernel.py"
    program.write_text(replace(table, rows=(searched,)).code(case), encoding="utf-8")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("out: relative error ")


def test_the_binary_of_a_row_is_disassembled_for_this_gpu(out):
    table = gt.read_table(out)
    row = next(row for row in table.rows if row.problem.name == PROBLEM)
    kernel = replace(table, rows=(replace(row, choices=(row.kernel,)),))
    assert "EXIT ;" in kernel.code(PROBLEM, "sass")
    assert f".target {table.device.arch}" in kernel.code(PROBLEM, "ptx")
