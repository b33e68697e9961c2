"""The engines' real kernels with our launches: right results on a CPU, and binaries that layers share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

import gemmtune as gt
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import parse_workload

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

WHEELS = "GEMMTUNE_ENGINE_WHEELS"
H200 = catalogue.device("H200")
TILE = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 2, "num_warps": 4, "num_stages": 2}
FLAT = TILE | {"BLOCK_SIZE_M": 8}
TALL = TILE | {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 32}
FEW = {"BLOCK_SIZE_M": 1, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}
PLAIN = {"SWAP_AB": False, "SPLIT_K": 1}


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    """A folder with the Python files and tuned files of both engines' wheels."""
    folder = os.environ.get(WHEELS)
    if not folder:
        pytest.skip(f"needs {WHEELS}=FOLDER with vllm-*.whl and sglang-*.whl (pip download --no-deps vllm sglang)")
    root = tmp_path_factory.mktemp("engines")
    for package in ("vllm", "sglang"):
        found = sorted(Path(folder).glob(f"{package}-*.whl"))
        if not found:
            pytest.skip(f"no {package}-*.whl in {folder}: pip download --no-deps {package} -d {folder}")
        with zipfile.ZipFile(found[-1]) as wheel:
            parts = ("/fused_moe", "/fp8_utils.py", "/fp8_kernel.py", "/configs/", ".dist-info/METADATA")
            wheel.extractall(root, [name for name in wheel.namelist() if any(part in name for part in parts)])
    return {"GEMMTUNE_VLLM": str(root), "GEMMTUNE_SGLANG": str(root)}


RUNS = [
    ("vllm_moe:m1:e16:k2:h128:n128:fp8_tensor", [TILE]),  # rows are not sorted
    ("vllm_moe:m7:e4:k2:h256:n128:fp8_block:zipf=1.5", [TILE, FLAT]),
    ("vllm_moe:m40:e3:k3:h128:n128:fp8_block", [TALL]),
    ("vllm_moe:m40:e3:k3:h128:n128:fp8_block:block=32x64", [TALL]),
    ("vllm_moe:m40:e3:k3:h128:n96:fp16", [TALL]),
    ("vllm_moe:m7:e4:k2:h96:n128:bf16", [TILE]),
    ("vllm_moe:m40:e3:k3:h128:n96:int8_w8a16", [TALL]),
    ("vllm_moe:m1:e16:k2:h128:n128:int8_w8a16", [TILE]),
    ("sglang_moe:m7:e4:k2:h256:n128:fp8_block:zipf=1.5", [TILE]),
    ("sglang_moe:m40:e3:k3:h128:n128:fp8_block:block=64x64", [TALL]),
    ("sglang_moe:m7:e4:k2:h96:n128:fp16", [TILE]),
    ("sglang_moe:m40:e3:k3:h128:n96:int8_w8a16", [TALL]),
    ("sglang_moe:m40:e3:k3:h128:n128:fp8_tensor", [TALL]),
    ("vllm_moe_wna16:m7:e4:k2:h256:n128:g64:int4_w4a16:zipf=1.5", [TILE]),
    ("vllm_moe_wna16:m1:e16:k2:h128:n128:g32:int4_w4a16:zeros", [FEW]),  # a tile per product
    ("vllm_moe_wna16:m40:e3:k3:h128:n96:g32:int8_w8a16", [TALL | {"BLOCK_SIZE_K": 32}]),
    ("sglang_moe_wna16:m7:e4:k2:h256:n128:g128:int4_w4a16:zeros", [TILE]),
    ("sglang_moe_wna16:m40:e3:k3:h128:n128:g64:int8_w8a16:zeros", [TALL]),
    ("vllm_block_fp8:m33:n192:k512", [TILE]),
    ("sglang_block_fp8:m33:n192:k512", [TILE | PLAIN, TILE | {"SWAP_AB": True, "SPLIT_K": 2}]),
]


@pytest.mark.slow(15)
def test_our_launches_of_the_engines_kernels_are_right(engines):
    command = [sys.executable, Path(__file__).with_name("interpreted.py"), json.dumps(RUNS)]
    environment = os.environ | engines | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 22
    assert [line for line in lines if not line.endswith(": right")] == []


@pytest.mark.slow(20)
@pytest.mark.parametrize("kind", ["vllm_moe", "sglang_moe"])
def test_layers_of_other_sizes_share_a_binary(engines, kind, tmp_path, monkeypatch):
    for name, value in engines.items():
        monkeypatch.setenv(name, value)
    space = registry.space(kind)
    sizes = ("m64:e128:k8:h2048:n768:bf16", "m48:e256:k8:h4096:n512:bf16", "m64:e128:k4:h2048:n768:bf16")
    tasks = [Task(parse_workload(f"{kind}:{size}"), H200, kind) for size in sizes]
    keys = [space.artifact_key(task, Config(TILE)) for task in tasks]
    assert keys[0] == keys[1] != keys[2]  # the number of experts per token is compiled in
    artifact = space.build(tasks[0], Config(TILE), tmp_path)
    assert artifact.key == keys[0]
    assert artifact.digest == space.build(tasks[1], Config(TILE), tmp_path).digest
    assert dict(artifact.launch)["kernels"] == 2


def test_the_baseline_is_the_shipped_entry_or_the_engines_default(engines, monkeypatch):
    for name, value in engines.items():
        monkeypatch.setenv(name, value)
    shipped = registry.space("vllm_moe_shipped")
    known, unknown = (
        Task(parse_workload(f"vllm_moe:m16:{size}"), H200, "vllm_moe_shipped")
        for size in ("e128:k8:h2048:n384:bf16", "e64:k6:h2048:n704:bf16")
    )
    file = Path(engines["GEMMTUNE_VLLM"]) / "vllm/model_executor/layers/fused_moe/configs"
    entry = json.loads((file / "E=128,N=384,device_name=NVIDIA_H200.json").read_text())["16"]
    assert shipped.seeds(known) == (Config(entry),)
    assert shipped.check(known, Config(entry))
    assert not shipped.check(known, Config(entry | {"num_stages": 7}))
    (default,) = shipped.seeds(unknown)
    assert default["BLOCK_SIZE_M"] == 16
    assert registry.space("vllm_moe").seeds(known)[0] == Config(entry)


@pytest.mark.parametrize("kind", ["vllm_moe", "sglang_moe"])
def test_operands_have_sorted_rows_for_every_tile_that_an_engine_ships(engines, kind):
    import torch

    from gemmtune.engine.measure.operands.operands import make_operands

    root = Path(engines["GEMMTUNE_VLLM"]) / kind.partition("_")[0]
    contents = [json.loads(file.read_text()) for file in root.rglob("E=*.json")]
    entries = [each for content in contents for each in content.values() if isinstance(each, dict)]
    shipped = {each["BLOCK_SIZE_M"] for each in entries if "BLOCK_SIZE_M" in each}
    operands: Any = make_operands(parse_workload(f"{kind}:m4:e4:k2:h32:n16:bf16"), torch.device("cpu"))
    known = operands.aligned
    assert shipped <= known.keys()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["vllm_moe", "sglang_moe"])
@pytest.mark.parametrize(
    "dtype",
    ["fp16", "int8_w8a16", "fp8_block:block=64x64", "g128:int4_w4a16", "g64:int4_w4a16:zeros", "g32:int8_w8a16"],
)
def test_a_layer_of_each_type_is_measured_right(engines, kind, dtype, monkeypatch):
    for name, value in engines.items():
        monkeypatch.setenv(name, value)
    kind = f"{kind}_wna16" if dtype.startswith("g") else kind
    result = gt.tune(f"{kind}:m64:e8:k2:h1024:n512:{dtype}", budget=4)
    (row,) = result.rows
    assert row.baseline is not None  # a wrong result is no choice
    assert kind in {choice.space for choice in row.choices}
