"""The main promise on a real GPU: compiled kernels are the rows', forward and backward; nothing is benchmarked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import Choice, Row
from gemmtune.engine.tables.inductor_exporter import InductorExporter
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


def row(problem, space, config):
    choice = Choice(space, Config(config), 100.0, 99.0, 101.0, 1, Evidence.MEASURED, "by hand", "events-cold-l2")
    return Row(Problem.parse(problem), (choice,), None, 0.0, ())


def test_forward_and_backward_run_the_rows_and_nothing_is_benchmarked(gpu_name, tmp_path):
    rows = (
        row("256x384x512:bf16:nt", "triton_mm", FORWARD),  # x @ w.t()
        row("256x512x384:bf16:nn", "triton_mm", BACKWARD),  # the gradient of x, compiled in autograd's thread
        row("384x512x256:bf16:tn", "aten", {}),  # the gradient of w
    )
    device = replace(example_table().device, name=gpu_name)
    for name, text in InductorExporter().export(replace(example_table(), device=device, rows=rows)).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), "TRITON_CACHE_DIR": str(tmp_path / "triton")}
    probe = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("inductor_gpu_probe.py")), str(tmp_path)],
        env={**os.environ, **caches},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert probe.returncode == 0, probe.stderr[-3000:]
    report = json.loads(probe.stdout)
    assert report["benchmarks"] == {}
    for tiles in (FORWARD, BACKWARD):
        for block in ("BLOCK_M", "BLOCK_N", "BLOCK_K"):
            assert f"{block} : tl.constexpr = {tiles[block]}" in report["code"]
    assert report["code"].count("extern_kernels.mm(") == 1
    assert max(report["errors"]) < 4e-3
