"""Decode kernels on the GPU that is here: right, capturable, and contained when they fail."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.toolchain.gpu_info import present_device

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cutlass", reason="nvidia-cutlass-dsl is not installed")

from gemmtune.engine.measure.operands.operands import make_operands  # noqa: E402 (it imports torch)
from gemmtune.engine.measure.operands.reference import ReferenceResult, poison  # noqa: E402 (as above)

DEVICE = present_device()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        DEVICE is None or DEVICE.arch not in ("sm_90a", "sm_100a"),
        reason="needs a GPU of sm_90a or sm_100a and gemmtune[triton,cute]",
    ),
    pytest.mark.timeout(400),
]


@pytest.mark.parametrize("name", ["cute_gemv", "cute_splitk"])
@pytest.mark.parametrize(
    "problem",
    [
        "3x999x7176:bf16:nt:addmm",
        "13x33x14336:fp16:nt",
        "16x250x2056:bf16:nt:addmm:bias=matrix",
        "1x1x8:bf16:nt",
        "8x512x1024:bf16:nt:lda=65536:ldb=1536",
        "16x1001x4096:bf16:nt:epilogue=mul(matrix.silu)",
        "3x512x2048:bf16:nt:addmm:epilogue=gelu.mul(row).to(fp32)",
        "7x384x4096:fp16:nt:addmm:epilogue=add(matrix[fp32,t]).mul(column).mul(scalar).relu",
        "8x96x4096:bf16:nt:epilogue=maximum(matrix).minimum(2).abs.add(1).sqrt",
        "8x96x4096:bf16:nt:epilogue=gt(0).where(x,matrix)",
    ],
)
def test_a_kernel_is_right_and_can_be_captured(name, problem, tmp_path):
    space, task = registry.space(name), Task(Problem.parse(problem), DEVICE, name)
    operands: Any = make_operands(task.problem, torch.device("cuda"))
    reference = ReferenceResult(task.problem, operands)
    feasible = [config for config in space.points(task) if space.check(task, config)]
    for config in (space.seeds(task)[0], feasible[0], feasible[-1]):
        kernel = space.load(space.build(task, config, tmp_path), task)
        poison(operands.out)
        kernel(*operands.arguments)
        torch.cuda.synchronize()
        assert not reference.check(operands.out).reason, config
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            kernel(*operands.arguments)
        poison(operands.out)
        graph.replay()
        torch.cuda.synchronize()
        assert not reference.check(operands.out).reason, config
        del graph
        kernel.close()


def test_a_hang_a_wrong_sum_and_an_illegal_address_each_cost_one_worker_and_are_not_tried_again(tmp_path, monkeypatch):
    for name in ("faulty_cute.py", "faulty_cute_driver.py"):
        shutil.copy(Path(__file__).with_name(name), tmp_path / name)
    info = tmp_path / "faulty_cute-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty_cute\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[gemmtune.spaces]\nfaulty_cute = faulty_cute:FaultyCuteSpace\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    command = [sys.executable, "-P", str(tmp_path / "faulty_cute_driver.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-8000:]
    first, again = json.loads(done.stdout.splitlines()[-1])
    statuses = {fault: status for fault, status, _ in first if fault is not None}
    assert statuses == {
        "none": "ok",
        "endless": "timed_out",
        "illegal address": "run_failed",
        "wrong sum": "wrong_result",
        "none again": "ok",
    }
    reasons = {fault: reason for fault, _, reason in first}
    assert "still running after 15 s" in reasons["endless"]
    assert "illegal" in reasons["illegal address"].lower()
    assert again == first  # a config that hung is known to the database, and not run a second time
