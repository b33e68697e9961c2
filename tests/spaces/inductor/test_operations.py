"""Kernels of addmm, bmm and of an m that is an argument, rendered and built on a CPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.spaces.triton_mm import TritonMmSpace

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

pytestmark = pytest.mark.slow(15)

SPACE = TritonMmSpace()
TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}


def task(problem):
    return Task(Problem.parse(problem), catalogue.device("H200"), "triton_mm")


def build(target, folder, **changes):
    return SPACE.build(target, Config(TILE | changes), folder)


def parameters(source):
    """Names of the kernel's parameters."""
    return re.search(r"def triton_\w+\((.*)\):", source)[1].split(", ")


@pytest.mark.parametrize(
    ("bias", "layout", "element"),
    [
        ("vector", "nt", "in_ptr0 + (tl.broadcast_to(idx_n, "),
        ("matrix", "tn", "in_ptr0 + (tl.broadcast_to(idx_n + 300*idx_m, "),
    ],
)
def test_the_bias_of_an_addmm_is_added_in_the_kernel(rendered, bias, layout, element):
    source, rendering = rendered(f"512x300x100:bf16:{layout}:addmm:bias={bias}")
    assert parameters(source) == ["in_ptr0", "arg_A", "arg_B", "out_ptr0"]
    epilogue = source.split("# inductor generates a suffix")[1]
    assert element in epilogue
    assert "acc + tmp0" in epilogue
    assert rendering.grid == (8 * 10, 1, 1)


def test_a_batch_is_the_grids_second_dimension(rendered):
    source, rendering = rendered("7x512x300x100:bf16:tn:bmm")
    assert parameters(source) == ["arg_A", "arg_B", "out_ptr0"]
    assert rendering.grid == (8 * 10, 7, 1)
    assert [f"stride_{name} = {stride}\n" in source for name, stride in (("aq", 51200), ("bq", 30000))] == [True] * 2
    assert "xindex = idx_n + 300*idx_m + 153600*idx_q" in source


@pytest.mark.parametrize("more", ["", ":addmm", ":addmm:bias=matrix"])
def test_a_dynamic_m_is_an_argument_and_the_other_sizes_are_compiled_in(rendered, more):
    source, rendering = rendered(f"500x300x100:bf16:tn{more}:dynamic_m=true")
    assert parameters(source)[-1] == "ks0"
    lines = [line.strip() for line in source.splitlines()]
    for line in ("M = ks0", "N = 300", "K = 100", "stride_am = 1", "stride_ak = ks0", "stride_bk = 300"):
        assert line in lines
    assert rendering.grid == (8 * 10, 1, 1)


@pytest.mark.parametrize(
    ("problem", "arguments"),
    [
        ("200x300x96:bf16:nt:addmm", "bias a b out"),
        ("200x300x96:fp16:nn:addmm:bias=matrix", "bias a b out"),
        ("3x200x300x96:bf16:tn:bmm", "a b out"),
        ("200x300x96:bf16:nt:dynamic_m=true", "a b out m"),
        ("200x300x96:bf16:tt:dynamic_m=true", "a b out m"),
        ("200x300x96:tf32:nt:addmm:dynamic_m=true", "bias a b out m"),
        ("3x200x300x96:bf16:nt:bmm:dynamic_m=true", "a b out m"),
    ],
)
def test_the_artifact_states_resources_and_launch(problem, arguments, tmp_path):
    target = task(problem)
    artifact = build(target, tmp_path)
    facts = dict(artifact.launch)
    assert facts["arguments"] == arguments
    rows = 4 if "block_m" not in facts else 1
    assert (facts["grid_x"], facts["grid_y"]) == (rows * 5, target.problem.batch)
    assert facts.get("block_m", 64) == 64
    assert 16 <= artifact.resources.registers <= 255
    assert Path(artifact.path).read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize("problem", ["x320x96:bf16:nt", "x320x96:fp16:tn:addmm:bias=matrix"])
def test_every_value_of_a_dynamic_m_gives_the_same_artifact(problem, tmp_path):
    sizes, artifacts = (2, 100, 4096), {}
    for m in sizes:
        target = task(f"{m}{problem}:dynamic_m=true")
        artifact = build(target, tmp_path)
        artifacts[artifact.digest] = (artifact.key, artifact.launch, artifact.resources)
    assert len(artifacts) == 1
    assert len(list(tmp_path.iterdir())) == len(sizes)  # builders may make one binary for several tasks at a time
    assert build(task(f"4096{problem}"), tmp_path).digest not in artifacts


def test_a_dynamic_m_whose_indices_take_64_bits_has_a_binary_of_its_own(tmp_path):
    small, large = (task(f"{m}x40000x64:bf16:nt:dynamic_m=true") for m in (4096, 70000))
    built = [build(target, tmp_path) for target in (small, large)]
    assert built[0].digest != built[1].digest
    assert built[0].key != built[1].key


PROBLEMS = [
    "512x512x4096:bf16:nt:addmm",
    "4x512x512x4096:bf16:nn:bmm",
    "512x512x4096:bf16:nt:dynamic_m=true",
    "512x512x4096:bf16:tn:dynamic_m=true",
    "512x512x4096:tf32:nt:dynamic_m=true",
]
CHANGES = [
    {"num_stages": 1},
    {"num_stages": 4, "num_warps": 8},
    {"BLOCK_M": 16, "num_stages": 5},
    {"BLOCK_M": 128, "BLOCK_K": 64, "num_stages": 2},
]


@pytest.mark.parametrize(
    ("problem", "changes"),
    [(each, CHANGES[(number + step) % 4]) for number, each in enumerate(PROBLEMS) for step in (0, 2)],
)
def test_no_binary_has_less_shared_memory_than_the_check_counts(problem, changes, tmp_path):
    target, config = task(problem), Config(TILE | changes)
    assert SPACE.check(target, config)
    needed = build(target, tmp_path, **changes).resources.shared_bytes
    assert needed >= SPACE.least_shared_bytes(target, config)
