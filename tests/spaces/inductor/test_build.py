"""The rendered source, and the binaries compiled from it for GPUs that are not here."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import BuildError
from gemmtune.spaces.triton_mm import TritonMmSpace

torch = pytest.importorskip("torch", reason="torch is not installed")
triton = pytest.importorskip("triton", reason="triton is not installed")

from torch._inductor import utils  # noqa: E402 (torch is there)
from torch._inductor.runtime import triton_helpers  # noqa: E402
from torch._inductor.runtime.hints import DeviceProperties  # noqa: E402

from gemmtune.spaces.triton_source.compiler import CUOBJDUMP  # noqa: E402 (it imports triton)

pytestmark = pytest.mark.slow(20)

SPACE = TritonMmSpace()
SMALL = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}


def task(problem, sku="H200", **device):
    return Task(Problem.parse(problem), replace(catalogue.device(sku), **device), "triton_mm")


def constant(source, name):
    """The value a `NAME = …` or `NAME : tl.constexpr = …` line of the kernel gives."""
    lines = [line.strip() for line in source.splitlines()]
    (line,) = [line for line in lines if line.startswith((f"{name} = ", f"{name} : tl.constexpr = "))]
    return line.split(" = ")[1]


def index_of_load(source, operand):
    """The element an operand is loaded from: `idx_m` and `idx_n` are the row and the column."""
    before, load = source.split(f"tl.load({operand} + (")
    if load.startswith("xindex)"):
        return before.rsplit("xindex = ", 1)[1].split("\n")[0]
    return load.removeprefix("(tl.broadcast_to(").split(",")[0]


def test_sizes_blocks_and_options_are_static(rendered):
    source, rendering = rendered("512x300x100:bf16:nt")
    assert {name: int(constant(source, name)) for name in "MNK"} == {"M": 512, "N": 300, "K": 100}
    for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M"):
        assert int(constant(source, name)) == SMALL[name]
    assert "num_stages=3," in source
    assert "num_warps=4," in source
    assert constant(source, "ACC_TYPE") == "tl.float32"
    assert constant(source, "USE_FAST_ACCUM") == "False"
    assert constant(source, "INDEX_DTYPE") == "tl.int32"
    assert rendering.grid == (8 * 10, 1, 1)
    assert rendering.kernel.name == "triton_mm"


@pytest.mark.parametrize(("k", "even"), [(96, True), (128, True), (97, False), (100, False), (31, False), (1, False)])
def test_a_ragged_k_is_masked(rendered, k, even):
    source, _ = rendered(f"512x512x{k}:bf16:nt")
    assert constant(source, "EVEN_K") == str(even)
    assert ("mask=a_mask, other=0.0" in source) is not even
    assert ("mask=b_mask, other=0.0" in source) is not even


BEFORE_2_13 = tuple(map(int, version("torch").split(".")[:2])) < (2, 13)


@pytest.mark.parametrize(
    ("problem", "allowed"),
    [
        ("16x512x512:tf32:nt", True),
        ("2048x4096x4096:tf32:nn", True),
        # 2.13 follows cuBLAS, which computes m below 16 and min(n, k) below 512 in full fp32
        ("15x512x512:tf32:nt", BEFORE_2_13),
        ("16x511x512:tf32:nt", BEFORE_2_13),
        ("16x512x511:tf32:nt", BEFORE_2_13),
        ("2048x4096x4096:fp32:nt", False),
        ("2048x4096x4096:bf16:nt", False),
    ],
)
def test_tf32_is_allowed_where_the_problem_and_its_size_allow_it(rendered, problem, allowed):
    assert constant(rendered(problem)[0], "ALLOW_TF32") == str(allowed)


@pytest.mark.parametrize(
    ("problem", "dtype"),
    [
        ("70000x40000x64:bf16:nt", "tl.int64"),
        ("46341x64x46341:bf16:nt", "tl.int64"),
        ("46340x64x46340:bf16:nt", "tl.int32"),
    ],
)
def test_indices_have_the_width_that_the_largest_operand_needs(rendered, problem, dtype):
    assert constant(rendered(problem)[0], "INDEX_DTYPE") == dtype


@pytest.mark.parametrize(
    ("layout", "strides", "a_index", "b_index"),
    [
        ("nn", (80, 1, 48, 1), "idx_n + 80*idx_m", "idx_n + 48*idx_m"),
        ("nt", (80, 1, 1, 80), "idx_n + 80*idx_m", "idx_m + 80*idx_n"),
        ("tn", (1, 64, 48, 1), "idx_m + 64*idx_n", "idx_n + 48*idx_m"),
        ("tt", (1, 64, 1, 80), "idx_m + 64*idx_n", "idx_m + 80*idx_n"),
    ],
)
def test_operands_are_read_by_their_strides(rendered, layout, strides, a_index, b_index):
    source, _ = rendered(f"64x48x80:fp16:{layout}")
    names = ("stride_am", "stride_ak", "stride_bk", "stride_bn")
    assert tuple(int(constant(source, name)) for name in names) == strides
    assert (index_of_load(source, "A"), index_of_load(source, "B")) == (a_index, b_index)
    store = source.split("# inductor generates a suffix")[1]
    assert "xindex = idx_n + 48*idx_m" in store  # the output is row-major whatever the operands are


@pytest.mark.parametrize(
    ("problem", "sku"),
    [
        ("300x200x100:bf16:nn", "H200"),
        ("300x200x100:bf16:nt", "H200"),
        ("300x200x100:bf16:tn", "H200"),
        ("300x200x100:bf16:tt", "H200"),
        ("300x200x99:fp16:nt", "H200"),
        ("64x64x64:fp32:nt", "H200"),
        ("64x512x512:tf32:nt", "H200"),
        ("1x200x100:bf16:nt", "H200"),
        ("300x1x100:bf16:tn", "H200"),
        ("300x200x1:bf16:tt", "H200"),
        ("1x1x1:fp32:nn", "H200"),
        ("70000x40000x64:bf16:nt", "H200"),
        ("300x200x100:bf16:nt", "A100"),
        ("300x200x100:bf16:nt", "A10G"),
        ("300x200x100:bf16:nt", "RTX-4090"),
        ("300x200x100:bf16:nt", "B200"),
        ("300x200x100:bf16:nt", "RTX-5090"),
    ],
)
def test_a_problem_builds_for_an_absent_gpu(problem, sku, tmp_path):
    target = task(problem, sku)
    config = min(SPACE.seeds(target), key=lambda c: (c.integer("BLOCK_M") * c.integer("BLOCK_N"), c.integer("BLOCK_K")))
    artifact = SPACE.build(target, config, tmp_path)
    launch, used = dict(artifact.launch), artifact.resources
    tiles = -(-target.problem.m // config.integer("BLOCK_M")) * -(-target.problem.n // config.integer("BLOCK_N"))
    assert (launch["grid_x"], launch["grid_y"], launch["grid_z"]) == (tiles, 1, 1)
    assert launch["threads"] == used.threads == 32 * config.integer("num_warps")
    assert launch["shared_bytes"] == used.shared_bytes <= target.device.shared_memory_per_block_bytes
    assert launch["entry"] == "triton_mm"
    assert 16 <= used.registers <= 255
    assert used.spill_bytes < 64
    assert Path(artifact.path).read_bytes()[:4] == b"\x7fELF"
    read = arch_of(artifact.path)
    # Triton 3.6 has an older cuobjdump than torch 2.11 has a ptxas: it misses the `a` of sm_90a.
    assert read == target.device.arch or (version("triton").startswith("3.6.") and f"{read}a" == "sm_90a")


def arch_of(path):
    """The architecture cuobjdump reads from a binary."""
    command = [CUOBJDUMP, "-lelf", path]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return listed.strip().removesuffix(".cubin").rsplit(".", 1)[1]


def test_a_kernel_that_spills_reports_its_spills(tmp_path):
    one_warp = Config(SMALL | {"BLOCK_N": 128, "num_stages": 1, "num_warps": 1})  # 256 accumulators per thread
    resources = SPACE.build(task("256x256x256", "A100"), one_warp, tmp_path).resources
    assert resources.registers == 255
    assert resources.spill_bytes > 0


def near_the_limit(target, low, high, seed, count):
    """Configs whose least shared memory is between these shares of the limit, quick ones to build, always the same."""
    roomy = replace(target, device=replace(target.device, shared_memory_per_block_bytes=2**30))
    limit = target.device.shared_memory_per_block_bytes
    found, points = [], list(SPACE.points(target))
    random.Random(seed).shuffle(points)
    for config in points:
        if len(found) == count:
            break
        m, n, k = (config.integer(f"BLOCK_{axis}") for axis in "MNK")
        quick = config.integer("num_warps") == 8 and k <= 128 and m * n * k <= 2**18
        least = TritonMmSpace().least_shared_bytes(target, config)
        if quick and low * limit < least <= high * limit and SPACE.check(roomy, config):
            found.append((config, least))
    return found


@pytest.mark.parametrize(
    ("problem", "sku"),
    [
        ("512x512x4096:bf16:nt", "H200"),  # wgmma, and mma.sync where the tile or the warps are too few
        ("512x512x4094:bf16:nt", "H200"),  # rows of 4-byte alignment
        ("512x512x4093:bf16:nn", "H200"),  # rows of A that cannot be copied asynchronously
        ("512x512x1024:fp32:nt", "H200"),
        ("512x512x1024:tf32:nt", "H200"),
        ("512x512x4096:bf16:tn", "RTX-4090"),
        ("512x512x4096:bf16:nt", "B200"),  # tcgen05 keeps more than the bound at times
    ],
)
def test_check_and_the_compiler_agree_on_shared_memory(problem, sku, tmp_path):
    target = task(problem, sku)
    limit = target.device.shared_memory_per_block_bytes
    roomy = replace(target, device=replace(target.device, shared_memory_per_block_bytes=2**30))
    below, above = near_the_limit(target, 0.6, 1, 1, 1), near_the_limit(target, 1, 1.5, 2, 1)
    assert below
    for config, least in below:
        assert SPACE.check(target, config)
        needed = SPACE.build(roomy, config, tmp_path).resources.shared_bytes
        assert needed >= least
        if sku != "B200":
            assert needed == least <= limit
    for config, least in above:
        assert SPACE.check(target, config).rule == "shared memory"
        assert SPACE.build(roomy, config, tmp_path).resources.shared_bytes >= least > limit


def test_a_tf32_problem_computed_in_fp32_needs_no_shared_memory_for_tensor_cores(tmp_path):
    config = Config(SMALL | {"BLOCK_N": 64, "BLOCK_K": 64, "num_stages": 4})
    buffers = 4 if BEFORE_2_13 else 3  # Inductor 2.13 allows no tf32 at n and k of 256, and only wgmma keeps all four
    target = task("512x256x256:tf32:nt", shared_memory_per_block_bytes=buffers * 4 * 64 * 128)
    assert SPACE.check(target, config)
    resources = SPACE.build(target, config, tmp_path).resources
    assert resources.shared_bytes == target.device.shared_memory_per_block_bytes


def test_a_binary_beyond_the_device_is_refused(tmp_path):
    fits = SPACE.build(task("512x512x512"), Config(SMALL), tmp_path).resources.shared_bytes
    assert SPACE.build(task("512x512x512", shared_memory_per_block_bytes=fits), Config(SMALL), tmp_path)
    refused = tmp_path / "refused"
    refused.mkdir()
    with pytest.raises(BuildError, match=rf"needs {fits} B of shared memory > {fits - 1} B per block"):
        SPACE.build(task("512x512x512", shared_memory_per_block_bytes=fits - 1), Config(SMALL), refused)
    assert not any(refused.iterdir())


def world():
    """Return all that a build may not change: the environment, torch's settings, and what the target replaces."""
    return {
        "environment": dict(os.environ),
        "precision": torch.backends.cuda.matmul.fp32_precision,
        "properties": DeviceProperties.create,
        "capability": torch.cuda.get_device_capability,
        "driver": triton.runtime.driver._active,
        "set_driver": triton_helpers.set_driver_to_gpu,
        "multiprocessors": utils.get_max_num_sms,
        "settings": torch._inductor.config.get_config_copy(),
        "compile": triton.compile,
    }


@pytest.mark.parametrize("problem", ["64x512x512:tf32:nt", "64x512x512:bf16:nt"])
def test_a_build_leaves_the_cubin_and_nothing_else(problem, tmp_path):
    before = world()
    artifact = SPACE.build(task(problem), Config(SMALL), tmp_path)
    assert [str(path) for path in tmp_path.iterdir()] == [artifact.path]
    assert world() == before


def test_a_build_that_fails_leaves_nothing(tmp_path):
    before = world()
    with pytest.raises(BuildError, match="num_warps must be a power of 2"):
        SPACE.build(task("64x64x64:tf32:nt"), Config(SMALL | {"num_warps": 3}), tmp_path)
    assert not any(tmp_path.iterdir())
    assert world() == before


def test_the_setting_of_fp32_precision_does_not_reach_the_kernel(rendered):
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        for setting in ("tf32", "ieee"):
            matmul.fp32_precision = setting
            assert constant(rendered("64x512x512:tf32:nt")[0], "ALLOW_TF32") == "True"
            assert constant(rendered("64x512x512:fp32:nt")[0], "ALLOW_TF32") == "False"
            assert matmul.fp32_precision == setting
    finally:
        matmul.fp32_precision = before


def test_equal_kernels_are_equal_binaries_in_every_folder_and_process(tmp_path):
    digests = set()
    for name in ("short", "a_folder_of_a_longer_name"):
        (tmp_path / name).mkdir()
        digests.add(SPACE.build(task("64x64x64"), Config(SMALL), tmp_path / name).digest)
    assert len(digests) == 1


FORKED = """
import gc, importlib, os, sys, threading
from pathlib import Path
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.spaces.triton_mm import TritonMmSpace

space = TritonMmSpace()
for name in space.preload:
    importlib.import_module(name)
from triton.runtime.cache import triton_key

print(threading.active_count(), triton_key.cache_info().misses)
if os.fork() == 0:
    config = Config({"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 8, "num_stages": 3, "num_warps": 4})
    space.build(Task(Problem.parse("256x256x256"), catalogue.device("H200"), "triton_mm"), config, Path(sys.argv[1]))
    print(triton_key.cache_info().misses, flush=True)
    os._exit(0)
os.wait()
gc.freeze()  # nothing to find at the end, among all that torch imports
"""


def test_preloading_hashes_triton_and_leaves_one_thread(tmp_path):
    script, folder = tmp_path / "forked.py", tmp_path / "built"
    script.write_text(FORKED)
    folder.mkdir()
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, str(script), str(folder)]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert said.split() == ["1", "1", "1"]  # one thread and one hash, and the build needed no other
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize(
    ("problem", "arguments"),
    [
        ("64x512x512:e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32])", "a b column row out"),
        (
            "64x512x512:e4m3:nt:epilogue=mul(scalar[fp32]).mul(scalar2[fp32]).add(row).silu:accumulation=exact",
            "a b scalar scalar2 row out",
        ),
        ("8x512x512:int8:nt:out_dtype=bf16:epilogue=mul(column[fp32]).mul(row[fp32])", "a b column row out"),
    ],
)
def test_operands_of_8_bits_and_their_scales_are_one_kernels(problem, arguments, tmp_path):
    work = task(problem)
    config = next(seed for seed in SPACE.seeds(work) if seed["num_stages"] == 3)
    artifact = SPACE.build(work, config, tmp_path)
    assert dict(artifact.launch)["arguments"] == arguments
    assert int(dict(artifact.launch)["shared_bytes"]) >= SPACE.least_shared_bytes(work, config)


@pytest.mark.parametrize(("accumulation", "fast"), [("fast", True), ("exact", False)])
def test_exact_sums_are_added_up_outside_the_tensor_cores(accumulation, fast, rendered):
    problem = f"64x512x512:e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32]):accumulation={accumulation}"
    source, _ = rendered(problem)
    assert ("tl.dot(a, b, acc" in source) is fast
