"""Kernels of addmm, bmm, of an m that is an argument, and of the persistent template, rendered and built on a CPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.spaces import triton_mm, triton_mm_tma

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

pytestmark = pytest.mark.slow(15)

LEAST_SHARED_BYTES = {
    "triton_mm": triton_mm.TritonMmSpace().least_shared_bytes,
    "triton_mm_tma": triton_mm_tma.TritonMmTmaSpace().least_shared_bytes,
}
TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}
PERSISTENT = "triton::mm_persistent_tma"


def task(problem, space="triton_mm", sku="H200"):
    return Task(Problem.parse(problem), catalogue.device(sku), space)


def build(target, folder, **changes):
    return registry.space(target.space).build(target, Config(TILE | changes), folder)


def launch(target, folder, **changes):
    return dict(build(target, folder, **changes).launch)


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


@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_the_persistent_template_reads_by_descriptors_of_the_operands_layouts(rendered, layout):
    source, rendering = rendered(f"4096x2048x512:bf16:{layout}", template=PERSISTENT)
    for name, value in (
        ("A_ROW_MAJOR", layout[0] == "n"),
        ("B_ROW_MAJOR", layout[1] == "n"),
        ("NUM_SMS", 132),
        ("TMA_SIZE", 128),
        ("TMA_EXPERIMENTAL_API", False),
    ):
        assert f"{name} : tl.constexpr = {value}\n" in source
    assert source.count("make_tensor_descriptor(") == 2
    assert rendering.grid == (132, 1, 1)  # of 64 × 64 tiles, each block takes some
    assert rendering.workspace_bytes == 132 * 2 * 128


def test_a_small_problem_has_no_more_persistent_blocks_than_tiles(rendered):
    assert rendered("128x160x512:bf16:nt", template=PERSISTENT)[1].grid == (2 * 5, 1, 1)


@pytest.mark.parametrize(
    ("problem", "space", "arguments", "own_bytes"),
    [
        ("200x300x96:bf16:nt:addmm", "triton_mm", "bias a b out", 0),
        ("200x300x96:fp16:nn:addmm:bias=matrix", "triton_mm", "bias a b out", 0),
        ("3x200x300x96:bf16:tn:bmm", "triton_mm", "a b out", 0),
        ("200x300x96:bf16:nt:dynamic_m=true", "triton_mm", "a b out m", 0),
        ("200x300x96:bf16:tt:dynamic_m=true", "triton_mm", "a b out m", 0),
        ("200x300x96:tf32:nt:addmm:dynamic_m=true", "triton_mm", "bias a b out m", 0),
        ("3x200x300x96:bf16:nt:bmm:dynamic_m=true", "triton_mm", "a b out m", 0),
        ("200x320x96:bf16:nt", "triton_mm_tma", "a b out workspace", 256),
        ("200x320x96:fp32:nn", "triton_mm_tma", "a b out workspace", 256),
        ("200x320x96:fp16:nt:addmm", "triton_mm_tma", "bias a b out workspace", 256),
    ],
)
def test_the_artifact_states_resources_and_launch(problem, space, arguments, own_bytes, tmp_path):
    target = task(problem, space)
    artifact = build(target, tmp_path)
    facts = dict(artifact.launch)
    assert facts["arguments"] == arguments
    assert facts["scratch_bytes"] == own_bytes  # of a block: two descriptors of 128 B
    assert facts["workspace_bytes"] == (132 * own_bytes)
    rows = 4 if "block_m" not in facts else 1
    assert (facts["grid_x"], facts["grid_y"]) == (rows * 5, target.problem.batch)
    assert facts.get("block_m", 64) == 64
    assert 16 <= artifact.resources.registers <= 255
    assert Path(artifact.path).read_bytes()[:4] == b"\x7fELF"


@pytest.mark.parametrize("problem", ["x320x96:bf16:nt", "x320x96:bf16:tn:addmm", "x320x96:fp16:nn:addmm:bias=matrix"])
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


@pytest.mark.parametrize("sku", ["RTX-5090", "H100"])
def test_the_persistent_template_builds_for_every_gpu_that_inductor_offers_it_on(sku, tmp_path):
    facts = launch(task("512x512x512:bf16:nt", "triton_mm_tma", sku), tmp_path)
    assert facts["workspace_bytes"] == catalogue.device(sku).sm_count * 256
    assert facts["grid_x"] == 64


PROBLEMS = [
    ("512x512x4096:bf16:nt:addmm", "triton_mm"),
    ("4x512x512x4096:bf16:nn:bmm", "triton_mm"),
    ("512x512x4096:bf16:nt:dynamic_m=true", "triton_mm"),
    ("512x512x4096:bf16:tn:dynamic_m=true", "triton_mm"),
    ("512x512x4096:tf32:nt:dynamic_m=true", "triton_mm"),
    ("512x512x4096:bf16:nt", "triton_mm_tma"),
    ("512x512x4096:fp32:nt:addmm", "triton_mm_tma"),
    ("512x512x4096:tf32:nn", "triton_mm_tma"),
]
CHANGES = [
    {"num_stages": 1},
    {"num_stages": 4, "num_warps": 8},
    {"BLOCK_M": 16, "num_stages": 5},
    {"BLOCK_M": 128, "BLOCK_K": 64, "num_stages": 2},
]


@pytest.mark.parametrize(
    ("problem", "space", "changes"),
    [(*each, CHANGES[(number + step) % 4]) for number, each in enumerate(PROBLEMS) for step in (0, 2)],
)
def test_no_binary_has_less_shared_memory_than_the_check_counts(problem, space, changes, tmp_path):
    target, config = task(problem, space), Config(TILE | changes)
    assert registry.space(space).check(target, config)
    needed = build(target, tmp_path, **changes).resources.shared_bytes
    assert needed >= LEAST_SHARED_BYTES[space](target, config)
