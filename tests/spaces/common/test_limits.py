"""Bounds of kernels that need no package: the last value that fits, and the first that does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.task import Task
from gemmtune.spaces.common.tile_limits import fits_in_registers, fits_in_shared_memory, padded
from gemmtune.spaces.cute import families
from gemmtune.spaces.cute.decode import rules as decode
from gemmtune.spaces.cute.decode.tiling import Tiling
from gemmtune.spaces.cute.rules import design_exists, operands_fit
from gemmtune.spaces.inductor import rules
from gemmtune.spaces.quack import rules as quack
from gemmtune.spaces.quack import tiles


def task(problem="4096x4096x4096:bf16:nt", sku="H200", space="triton_mm"):
    return Task(Problem.parse(problem), catalogue.device(sku), space)


@pytest.mark.parametrize(("size", "block"), [(1, 16), (16, 16), (17, 32), (32, 32), (33, 64), (1000, 1024)])
def test_a_size_is_padded_to_the_next_power_of_two_from_16_on(size, block):
    assert padded(size) == block


@pytest.mark.parametrize(("rows", "columns", "warps", "rule"), [(255, 128, 4, ""), (256, 128, 4, "registers")])
def test_a_thread_has_255_registers(rows, columns, warps, rule):
    assert fits_in_registers(task(), rows, columns, warps).rule == rule


@pytest.mark.parametrize(("needed", "rule"), [(232_448, ""), (232_449, "shared memory")])
def test_a_block_of_an_h200_has_227_kib(needed, rule):
    assert fits_in_shared_memory(task(), needed, 4).rule == rule


TILE = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "num_warps": 4, "GROUP_M": 8}


@pytest.mark.parametrize(
    ("changes", "problem", "rule"),
    [
        ({}, "64x64x64", ""),
        ({}, "32x64x64", "BLOCK_M beyond the problem"),
        ({}, "33x64x64", ""),
        ({}, "32x64x64:bf16:nt:dynamic_m=true", ""),
        ({}, "64x32x64", "BLOCK_N beyond the problem"),
        ({}, "64x64x32", "BLOCK_K beyond the problem"),
        ({"num_warps": 16}, "64x64x64", ""),
        ({"num_warps": 17}, "64x64x64", "idle warps"),
        ({"num_warps": 1}, "64x64x64", "lone warp"),
        ({"num_warps": 1, "BLOCK_M": 16, "BLOCK_N": 16}, "64x64x64", ""),
        ({"num_warps": 2, "BLOCK_M": 256, "BLOCK_N": 128}, "256x256x64", "registers"),
    ],
)
def test_a_tile_fits_the_problem_its_warps_and_their_registers(changes, problem, rule):
    assert rules.tile_fits(task(problem), Config(TILE | changes)).rule == rule


@pytest.mark.parametrize(
    ("problem", "sku", "block_m", "warps", "uses"),
    [
        ("4096x4096x4096", "H200", 64, 4, 1),
        ("4096x4096x4096", "H200", 32, 4, 0),
        ("4096x4096x4096", "H200", 64, 6, 0),
        ("4096x4096x4096", "A100", 64, 4, 0),
        ("4096x4096x4096", "B200", 64, 4, 0),
        ("4096x4096x4096:fp32", "H200", 64, 4, 0),
        ("16x512x512:tf32", "H200", 64, 4, 1),
        ("15x512x512:tf32", "H200", 64, 4, 0),
        ("16x511x512:tf32", "H200", 64, 4, 0),
        ("16x512x511:tf32", "H200", 64, 4, 0),
        ("16x512x512:tf32:nt:dynamic_m=true", "H200", 64, 4, 0),
    ],
)
def test_hoppers_instructions_take_64_rows_and_groups_of_four_warps(problem, sku, block_m, warps, uses):
    assert rules.is_wgmma(task(problem, sku), block_m, warps) == uses
    many = rules.is_wgmma(task(problem, sku), np.array([block_m, 32]), np.array([warps, warps]))
    assert many.tolist() == [uses, 0]


@pytest.mark.parametrize(
    ("m", "group", "differs"),
    [(512, 4, True), (512, 16, False), (256, 4, False), (320, 4, True), (512, 8, True), (577, 16, True)],
)
def test_a_group_matters_where_it_orders_the_rows_of_tiles_otherwise(m, group, differs):
    assert bool(rules.groups_differ(task(f"{m}x4096x4096"), Config(TILE | {"GROUP_M": group}))) is differs


def test_a_listed_config_is_scaled_to_a_small_problem():
    scaled = rules.scaled_config(Problem(20, 4096, 40), 128, 32, 64, 3, 8)
    assert scaled == rules.template_config(32, 32, 64, 3, 4)
    assert dict(scaled) == {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 64, "num_stages": 3, "num_warps": 4, "GROUP_M": 8}


def test_the_busiest_sm_loads_its_share_of_tiles():
    # 65 × 64 tiles in 132 SMs: 32 waves.
    assert rules.busiest_sm_traffic(task("4097x4096x64"), Config(TILE)) == 32 * 128
    assert rules.busiest_sm_traffic(task("2x4097x4096x64:bf16:nt:bmm"), Config(TILE | {"BLOCK_M": 32})) == 126 * 96


@pytest.mark.parametrize(
    ("problem", "rule"),
    [
        ("16x32x64:bf16", ""),
        ("16x32x64:bf16:nt:addmm:out_dtype=fp32", "dtypes"),
        ("16x32x64:int8", ""),
        ("16x32x64:int8:nn", "layout"),
        ("16x32x64:e4m3", "scales"),
        ("1x32x64:bf16:nt:dynamic_m=true", "dynamic m of 1"),
        ("2x32x64:bf16:nt:dynamic_m=true", ""),
        ("1x32x64:bf16", ""),
    ],
)
def test_a_template_takes_the_types_that_torch_renders_it_for_and_a_dynamic_m_from_2_on(problem, rule):
    assert rules.serves(task(problem)).rule == rule


TILING = Tiling(rows=4, columns=2, lanes_k=32, warps_n=1, warps_k=4, split_k=2, unroll=1, stages=4)


@pytest.mark.parametrize(
    ("changes", "k", "rule"),
    [
        ({}, 8192, ""),
        ({"warps_k": 16, "stages": 1}, 65536, ""),  # 512 threads
        ({"warps_k": 17, "stages": 1}, 65536, "threads"),
        ({"rows": 32, "stages": 1}, 8192, ""),  # 64 accumulators per lane
        ({"rows": 33, "stages": 1}, 8192, "registers"),
        ({"rows": 64, "columns": 32, "lanes_k": 4, "stages": 1}, 8192, ""),
        ({"rows": 64, "columns": 33, "lanes_k": 4, "stages": 1}, 8192, "registers"),
        ({"shares_a": True}, 8192, "shared A"),
        ({"shares_a": True, "warps_n": 2}, 8192, ""),
        ({"shares_a": True, "warps_n": 3}, 8192, "shared A"),
        ({"stages": 18}, 8192, ""),
        ({"stages": 19}, 8192, "shared memory"),
        ({}, 8 * 256, ""),  # eight chunks for eight warps
        ({}, 7 * 256, "idle warps"),
    ],
)
def test_a_tiling_fits_up_to_its_bounds(changes, k, rule):
    found = decode.fits(task(f"4x4096x{k}", space="cute_gemv"), Config({}), replace(TILING, **changes))
    assert found.rule == rule, found


@pytest.mark.parametrize(
    ("problem", "most", "sku", "rule"),
    [
        ("64x512x8192:bf16:nt", 64, "H200", ""),
        ("64x512x8192:bf16:nt", 63, "H200", "rows"),
        ("64x512x8192:bf16:nt", 64, "B200", ""),
        ("64x512x8192:bf16:nt", 64, "A100", "architecture"),
        ("64x512x8192:fp16:nt:out_dtype=fp32", 64, "H200", ""),
        ("64x512x8192:fp16:nt:addmm", 64, "H200", ""),
    ],
)
def test_a_decode_kernel_serves_up_to_its_rows(problem, most, sku, rule):
    assert decode.serves(task(problem, sku, "cute_gemv"), most).rule == rule


SM90 = {
    "tile_m": 128,
    "tile_n": 128,
    "cluster_m": 1,
    "cluster_n": 1,
    "pingpong": False,
    "is_dynamic_persistent": False,
    "swap_ab": False,
}


@pytest.mark.parametrize(
    ("sku", "changes", "rule"),
    [
        *(("H200", {"pingpong": True, "tile_m": m, "tile_n": n}, "") for m, n in ((64, 256), (128, 208), (192, 128))),
        *(
            ("H200", {"pingpong": True, "tile_m": m, "tile_n": n}, "tile_n")
            for m, n in ((128, 224), (192, 144), (64, 272))
        ),
        ("H200", {"pingpong": True, "tile_m": 256}, "tile_m"),
        *(("H200", {"tile_m": m, "tile_n": n}, "") for m, n in ((64, 256), (128, 256), (192, 128), (256, 208))),
        *(
            ("H200", {"tile_m": m, "tile_n": n}, "tile_n")
            for m, n in ((128, 272), (192, 160), (256, 224), (192, 112), (128, 24))
        ),
        ("H200", {"is_dynamic_persistent": True}, "is_dynamic_persistent"),
        ("B200", {"pingpong": True}, "pingpong"),
        ("B200", {"tile_m": 192}, "tile_m"),
        *(("B200", {"tile_n": n}, "") for n in (16, 32, 256, 512)),
        *(("B200", {"tile_n": n}, "tile_n") for n in (8, 24, 48, 288, 520)),
        ("B200", {"tile_m": 256}, "cluster_m"),
        ("B200", {"tile_m": 256, "cluster_m": 2, "tile_n": 512}, ""),
        ("B200", {"tile_m": 128, "cluster_m": 2, "tile_n": 512}, "tile_n"),
    ],
)
def test_quacks_kernels_have_tiles_up_to_their_widest(sku, changes, rule):
    found = quack.runs(task(sku=sku, space="quack_gemm"), Config(SM90 | changes))
    assert found.rule == rule, found


@pytest.mark.parametrize(
    ("sku", "changes", "tile", "traffic"),
    [
        ("H200", {}, (128, 128, 1, 1), 8 * 256),
        ("H200", {"tile_m": 256, "swap_ab": True, "cluster_m": 2}, (128, 256, 1, 2), 4 * 384),
        ("B200", {"tile_m": 256, "cluster_m": 2}, (128, 128, 2, 1), 7 * 256),  # a pair shares 256 rows
        ("B200", {"tile_m": 64, "cluster_m": 2}, (64, 128, 2, 1), 14 * 192),
    ],
)
def test_a_tile_is_that_of_one_block_along_the_output(sku, changes, tile, traffic):
    given, config = task(sku=sku, space="quack_gemm"), Config(SM90 | changes)
    found = tiles.clustered_tile(given, config)
    assert (found.m, found.n, found.cluster_m, found.cluster_n) == tile
    assert tiles.operand_traffic(given, config) == traffic


@pytest.mark.parametrize(
    ("problem", "changes", "order"),
    [
        ("1024x4096x64", {}, (True, 8)),  # 8 rows of clusters, 32 columns: four groups of columns against one
        ("4096x1024x64", {}, (False, 8)),
        ("1024x4096x64", {"swap_ab": True}, (False, 8)),
        ("512x4096x64", {}, (True, 4)),
        ("1024x1024x64", {}, (False, 8)),
        ("1024x4096x64", {"cluster_m": 2}, (True, 4)),
    ],
)
def test_tiles_advance_along_the_side_with_fewer_groups(problem, changes, order):
    assert tiles.tile_order(task(problem, space="quack_gemm"), Config(SM90 | changes), 8) == order


def test_a_transposed_problem_exchanges_sizes_and_turns_layouts():
    found = gemm(tiles.transposed(task("16x32x64:bf16:nn")).problem)
    assert (found.m, found.n, found.k) == (32, 16, 64)
    assert f"{found.a_layout}{found.b_layout}" == "tt"
    assert f"{gemm(tiles.transposed(task('16x32x64:bf16:nt')).problem).b_layout}" == "t"


OPERATOR = {
    "mma_tiler_m": 128,
    "mma_tiler_n": 128,
    "cluster_shape_m": 1,
    "cluster_shape_n": 1,
    "use_2cta_instrs": False,
    "use_tma_store": True,
    "tile_scheduler": "clc",
}
BY_NAME = {family.name: family for family in families.FAMILIES}
PERSISTENT, PREFERRED = BY_NAME["PersistentDenseGemmOperator"], BY_NAME["PersistentDenseGemmPreferredClusterOperator"]


@pytest.mark.parametrize(
    ("family", "changes", "rule"),
    [
        (PERSISTENT, {}, ""),
        (PERSISTENT, {"cluster_shape_m": 16}, ""),
        (PERSISTENT, {"cluster_shape_m": 4, "cluster_shape_n": 4}, ""),
        (PERSISTENT, {"cluster_shape_m": 17}, "cluster size"),
        (PERSISTENT, {"cluster_shape_m": 8, "cluster_shape_n": 4}, "cluster size"),
        (PERSISTENT, {"mma_tiler_m": 256}, "tile M"),
        (PERSISTENT, {"mma_tiler_m": 256, "use_2cta_instrs": True, "cluster_shape_m": 2}, ""),
        (PERSISTENT, {"mma_tiler_m": 256, "use_2cta_instrs": True}, "cluster of pairs"),
        (PERSISTENT, {"mma_tiler_n": 96}, "tile N"),
        (PERSISTENT, {"use_tma_store": False}, "store"),
        (PERSISTENT, {"tile_scheduler": "none"}, "scheduler"),
        (PREFERRED, {"cluster_shape_m": 2}, "fallback cluster"),
        (PREFERRED, {"cluster_shape_m": 3}, "fallback cluster"),
        (PREFERRED, {"cluster_shape_m": 4}, ""),
        (PREFERRED, {"cluster_shape_m": 2, "cluster_shape_n": 2}, ""),
        (BY_NAME["TgvGemmOperator"], {"mma_tiler_m": 64, "use_2cta_instrs": True}, "two CTAs"),
    ],
)
def test_a_design_is_listed_up_to_its_largest_cluster(family, changes, rule):
    assert design_exists(family, Config(OPERATOR | changes)).rule == rule


@pytest.mark.parametrize(
    ("name", "problem", "rule"),
    [
        ("PersistentDenseGemmOperator", "16x32x64:bf16:nn", ""),
        ("PersistentDenseGemmOperator", "16x32x60:bf16:nt", "alignment"),
        ("PersistentDenseGemmOperator", "16x40x72:bf16:nt", ""),  # rows of 80 and 144 B: multiples of 16 alone
        ("PersistentDenseGemmOperator", "16x44x72:bf16:nt", "alignment"),
        ("PersistentDenseGemmOperator", "16x32x64:fp32:nt", "types"),
        ("TgvGemmOperator", "16x32x64:bf16:nn", "layout"),
        ("TgvGemmOperator", "16x32x64:bf16:nt:out_dtype=fp16", "types"),
        ("TgvGemmOperator", "16x32x64:bf16:nt:out_dtype=fp32", ""),
        ("Sm90StaticPersistentGemmOperator", "16x32x64:int8:nt", ""),
        ("Sm90StaticPersistentGemmOperator", "16x32x64:int8:nn", "layout"),
        ("Sm80TensorOpGemmOperator", "16x32x64:int8:nt", "types"),
    ],
)
def test_an_operator_takes_its_types_layouts_and_aligned_rows(name, problem, rule):
    assert operands_fit(Problem.parse(problem), BY_NAME[name]).rule == rule


@pytest.mark.parametrize(("sku", "count"), [("H200", 2), ("B200", 5), ("L4", 1), ("RTX-5090", 1)])
def test_each_generation_has_its_operators(sku, count):
    assert len(families.families_of(catalogue.device(sku))) == count
