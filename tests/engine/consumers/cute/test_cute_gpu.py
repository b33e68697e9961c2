"""On a GPU both dispatchers run the rows' kernels, with correct results."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from gemmtune.engine.consumers.cute.exporter import CuteExporter
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Row, Table

pytestmark = pytest.mark.gpu

HOPPER = {
    "operator": "Sm90StaticPersistentGemmOperator",
    "mma_tiler_m": 64,
    "mma_tiler_n": 128,
    "cluster_shape_m": 1,
    "cluster_shape_n": 2,
    "use_2cta_instrs": False,
    "use_tma_store": False,
    "tile_scheduler": "none",
}
QUACK = {
    "tile_m": 128,
    "tile_n": 160,
    "cluster_m": 1,
    "cluster_n": 2,
    "pingpong": True,
    "swap_ab": False,
    "is_dynamic_persistent": False,
    "max_swizzle_size": 8,
}


@pytest.fixture(scope="module")
def hopper():
    for package in ("torch", "cutlass", "quack"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    import torch

    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("no Hopper GPU on this machine: the rows name its kernels")
    return replace(catalogue.device("H200"), name=torch.cuda.get_device_name())


def row(problem, space, config):
    choice = Choice(space, Config(config), 100.0, 99.0, 101.0, 1, Evidence.MEASURED, "by hand", "events-cold-l2")
    return Row(Problem.parse(problem), (choice,), None, 0.0, ())


def test_both_dispatchers_run_the_rows_kernels(hopper, tmp_path):
    rows = (row("256x384x512:bf16:nt", "cute_gemm", HOPPER), row("256x384x512:fp16:nt", "quack_gemm", QUACK))
    for name, text in CuteExporter().export(Table(hopper, rows, "latency")).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    probe = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("cute_gpu_probe.py")), str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert probe.returncode == 0, probe.stderr[-3000:]
    report = json.loads(probe.stdout)
    assert report["operator"] == ["Sm90StaticPersistentGemmOperator", 64, 128]
    assert report["executed"][:2] == [[128, 160]] * 2
    assert len(report["executed"]) == 3
    assert max(report["errors"]) < 4e-3
