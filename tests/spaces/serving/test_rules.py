"""Bounds and features of the engines' kernels, computed by hand: they need neither an engine nor Triton."""

from __future__ import annotations

from math import log2

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import parse_workload
from gemmtune.engine.toolchain.triton_tiles import least_shared_bytes
from gemmtune.spaces.serving.rules import column_blocks, fits, serves_fp8

TILE = {
    "BLOCK_SIZE_M": 64,
    "BLOCK_SIZE_N": 128,
    "BLOCK_SIZE_K": 128,
    "GROUP_SIZE_M": 1,
    "num_warps": 4,
    "num_stages": 3,
}


def task(name="vllm_block_fp8:m64:n4096:k7168", sku="H200"):
    return Task(parse_workload(name), catalogue.device(sku), name.partition(":")[0])


@pytest.mark.parametrize(
    ("capability", "stages", "rows", "buffers"),
    [
        ((9, 0), 3, 64, 3),
        ((9, 0), 3, 63, 2),
        ((10, 0), 3, 64, 3),
        ((8, 9), 3, 64, 2),
        ((12, 0), 3, 64, 2),
        ((8, 0), 2, 64, 1),
        ((8, 0), 1, 64, 1),
    ],
)
def test_a_pipeline_has_a_buffer_per_stage_or_one_less(capability, stages, rows, buffers):
    assert least_shared_bytes(capability, (64, 128, 32), stages, (2, 1), rows) == buffers * 32 * (64 * 2 + 128)


@pytest.mark.parametrize(
    ("changes", "limits", "rule"),
    [
        ({}, {}, ""),
        ({"BLOCK_SIZE_K": 256}, {}, "BLOCK_SIZE_K over the scales"),
        ({"BLOCK_SIZE_K": 256}, {"scaled": 0}, ""),
        ({"BLOCK_SIZE_K": 128}, {"scaled": 64}, "BLOCK_SIZE_K over the scales"),
        ({"BLOCK_SIZE_K": 256}, {"scaled": 0, "depth": 128}, "BLOCK_SIZE_K beyond k"),
        ({"BLOCK_SIZE_K": 64}, {"depth": 16}, ""),
        ({"BLOCK_SIZE_K": 128}, {"depth": 64}, "BLOCK_SIZE_K beyond k"),
        ({"BLOCK_SIZE_K": 128}, {"depth": 65}, ""),
        ({}, {"rows": 33}, ""),
        ({}, {"rows": 32}, "BLOCK_SIZE_M beyond the rows"),
        ({"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 128}, {"rows": 256}, "registers"),
        ({"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 128, "num_warps": 8}, {"rows": 256}, ""),
        ({"num_stages": 9}, {}, ""),  # 221,184 B
        ({"num_stages": 10}, {}, "shared memory"),
        ({"BLOCK_SIZE_M": 32, "num_stages": 11}, {"rows": 32}, ""),  # the instruction has 32 rows: ten buffers
        ({"BLOCK_SIZE_M": 32, "num_stages": 13}, {"rows": 32}, "shared memory"),
        ({"BLOCK_SIZE_M": 32, "num_stages": 12}, {"rows": 32, "swaps": True}, "shared memory"),  # 128 rows
    ],
)
def test_a_tile_fits_up_to_its_bounds(changes, limits, rule):
    given = {"rows": 64, "depth": 7168, "scaled": 128, "swaps": False, **limits}
    assert fits(task(), Config(TILE | changes), (1, 1), **given).rule == rule


@pytest.mark.parametrize(("sku", "serves"), [("A100", False), ("L4", True), ("H200", True), ("B200", True)])
def test_eight_bit_floats_need_sm_89(sku, serves):
    assert bool(serves_fp8(task(sku=sku))) is serves


@pytest.mark.parametrize(("columns", "blocks"), [(128, 1), (129, 2), (4096, 32)])
def test_columns_are_covered_by_whole_tiles(columns, blocks):
    assert column_blocks(columns, Config(TILE)) == blocks


def test_features_of_a_linear_layer():
    # 73,728 B per block: three per SM of 132, for 2 · 32 tiles.
    found = registry.space("vllm_block_fp8").features(task("vllm_block_fp8:m65:n4096:k7168"), Config(TILE))
    assert found == pytest.approx(
        {
            "filled rows": 65 / 128,
            "resident blocks": log2(3),
            "bytes in flight": log2(3 * 73_728),
            "operations per byte": log2(64 * 128 / 192),
            "waves": log2(64 / (132 * 3)),
            "steps": log2(56),
        }
    )


@pytest.mark.parametrize(
    ("changes", "resident"),
    [
        ({"num_warps": 8}, 3),  # shared memory
        ({"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "num_stages": 2}, 16),  # threads: 2048 / 128
        ({"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "num_stages": 2, "num_warps": 8}, 8),
        ({"num_stages": 12}, 1),  # at least one
    ],
)
def test_the_tighter_of_shared_memory_and_threads_holds_the_blocks_per_sm(changes, resident):
    found = registry.space("vllm_block_fp8").features(task(), Config(TILE | changes))
    assert 2 ** found["resident blocks"] == pytest.approx(resident)


def test_a_split_k_has_more_blocks_of_fewer_steps():
    split = Config(TILE | {"SWAP_AB": False, "SPLIT_K": 4})
    plain = Config(TILE | {"SWAP_AB": False, "SPLIT_K": 1})
    of_split, of_plain = (
        registry.space("sglang_block_fp8").features(task("sglang_block_fp8:m64:n4096:k7168"), each)
        for each in (split, plain)
    )
    assert of_split["waves"] - of_plain["waves"] == pytest.approx(2)
    assert of_split["steps"] - of_plain["steps"] == pytest.approx(-2)


def test_features_of_a_layer_of_experts():
    # 64 tokens of 2 experts each: 16 rows for each of 8 experts, in tiles of 64. Three blocks per SM, as above.
    of = task("vllm_moe:m64:e8:k2:h7168:n256:fp8_block")
    found = registry.space("vllm_moe").features(of, Config(TILE))
    active = of.problem.active_experts
    assert 7 < active <= 8
    assert {name: found[name] for name in ("filled rows", "waves 0", "waves 1", "steps 0", "steps 1")} == pytest.approx(
        {
            "filled rows": 128 / (active * 64),
            "waves 0": log2(active * 4 / (132 * 3)),
            "waves 1": log2(active * 56 / (132 * 3)),
            "steps 0": log2(56),
            "steps 1": log2(2),
        }
    )


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("vllm_moe:m1:e8:k2:h128:n128:fp8_block", (16, 512)),  # at least 512 on a side, and 16 rows
        ("vllm_moe:m16:e8:k2:h512:n256:bf16", (16, 1536)),
        ("vllm_moe:m512:e8:k2:h512:n256:bf16", (96, 2048)),
        ("vllm_moe:m16384:e256:k8:h7168:n2048:bf16", (8192, 8192)),
    ],
)
def test_a_layer_is_timed_beside_a_gemm_of_its_bytes(name, beside):
    work = parse_workload(name)
    found = registry.workload("vllm_moe").timed_beside(work)
    assert (found.m, found.n, found.k) == (beside[0], beside[1], beside[1])
