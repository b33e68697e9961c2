"""On a GPU, torch.compile runs CuTe rows in graphs, ranges, backward graphs, threads, and from its caches."""

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
from gemmtune.engine.toolchain.gpu_info import present_device

DEVICE = present_device()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        DEVICE is None or DEVICE.arch not in ("sm_90a", "sm_100a") or find_spec("cutlass") is None,
        reason="needs a GPU of sm_90a or sm_100a and gemmtune[triton,cute]",
    ),
]

GEMV = {"outputs_per_warp": 2, "warps_n": 1, "warps_k": 4, "split_k": 2, "k_unroll": 1, "num_stages": 4}
CLUSTERS_OF_FOUR = {"tile_m": 64, "tile_n": 32, "cluster_m": 2, "cluster_n": 2, "max_swizzle_size": 8} | dict.fromkeys(
    ("pingpong", "swap_ab", "is_dynamic_persistent"), False
)
SPLIT_K = {"warp_n": 16, "warps_n": 1, "warps_k": 4, "split_k": 4, "k_unroll": 2, "num_stages": 4, "share_a": False}


def choice(space, config):
    return Choice(space, Config(config), 100.0, 99.0, 101.0, 32, Evidence.MEASURED, "by hand", "events-cold-l2")


def row(problem, space, config):
    return Row(Problem.parse(problem), (choice(space, config),), None, 0.0, ())


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Reports of two processes that share torch's caches."""
    folder = tmp_path_factory.mktemp("cute")
    rows = (
        row("1x96x4096:bf16:nt", "cute_gemv", GEMV | {"use_pdl": True}),
        row("8x96x4096:bf16:nt:addmm", "cute_splitk", SPLIT_K | {"use_pdl": False}),
        row("8x96x4096:bf16:nt", "cute_splitk", SPLIT_K | {"use_pdl": True}),
        row("8x96x4096:bf16:nt:epilogue=silu.mul(matrix)", "cute_splitk", SPLIT_K | {"use_pdl": True}),
        row("1x96x4096:bf16:nt:addmm:epilogue=gelu.to(fp32)", "cute_gemv", GEMV | {"use_pdl": False}),
        row("4000x96x4096:bf16:nt", "quack_gemm", CLUSTERS_OF_FOUR),
    )
    split_k = choice("cute_splitk", SPLIT_K | {"use_pdl": False})
    ranges = tuple(
        RangeRow(Problem.parse(f"16x96x4096:bf16:nt:dynamic_m=true{epilogue}"), 2, 16, split_k, ((16, 0.0),))
        for epilogue in ("", ":epilogue=add(matrix).mul(row)")
    )
    table = replace(example_table(), device=DEVICE, rows=rows, ranges=ranges)
    write_all(InductorExporter().export(table), folder)
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TRITON_CACHE_DIR": str(folder / "triton")}
    found = []
    for which in ("first", "cached"):
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("cute_gpu_probe.py")), str(folder), which],
            env={**os.environ, **caches},
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-8000:]
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return found


def test_every_way_of_running_is_right_and_nothing_is_benchmarked(reports):
    first, _ = reports
    wrong = {way: error for way, error in first["errors"].items() if not error < 8e-3}
    assert wrong == {}
    assert first["benchmarks"] == {}
    ways = {"mm", "addmm", "backward", "graph", "cudagraph trees", "threads", "unaligned", "clusters"}
    assert ways | {"epilogue", "unaligned epilogue", "bias, gelu, fp32", "dynamic epilogue 5"} <= set(first["errors"])


def test_each_gpu_runs_the_tables_kernel_while_another_one_is_current(reports):
    first, _ = reports
    found = [way for way in first["errors"] if way.startswith("GPU ")]
    if not found:
        pytest.skip("needs two GPUs of one model")
    assert first["elsewhere"]  # the errors are asked for above
    assert all("extern_kernels.gemmtune_cute_" in code for code in first["elsewhere"])


def test_generated_code_calls_the_tables_kernel(reports):
    first, _ = reports
    assert "extern_kernels.gemmtune_cute_gemv_" in first["code"]


def test_all_products_but_those_beyond_the_range_run_rows(reports):
    uses = reports[0]["uses"]["uses"]
    of_rows = {use["problem"] for use in uses if use["outcome"] == "row"}
    of_range = "16x96x4096:bf16:nt:dynamic_m=true"  # also for m = 2 and 5
    with_epilogues = {
        "8x96x4096:bf16:nt:epilogue=silu.mul(matrix)",
        "1x96x4096:bf16:nt:addmm:epilogue=gelu.to(fp32)",
        f"{of_range}:epilogue=add(matrix).mul(row)",
    }
    plain = {"1x96x4096:bf16:nt", "8x96x4096:bf16:nt:addmm", "8x96x4096:bf16:nt", "4000x96x4096:bf16:nt", of_range}
    assert of_rows == plain | with_epilogues
    assert not [use for use in uses if "apart" in use["detail"]]
    others = [use for use in uses if use["outcome"] != "row"]
    assert [use["problem"] for use in others if use["problem"].startswith("300x")], others


def test_a_new_process_takes_the_code_from_torchs_cache_and_runs_the_kernel(reports):
    _, cached = reports
    assert cached["hits"] >= 1
    assert cached["use"]["products"] == 0
    assert cached["errors"]["mm"] < 8e-3
