"""Features and rough times of decode kernels, computed by hand."""

from __future__ import annotations

from math import log2

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.spaces.cute.decode.occupancy import features, rough_time_ns
from gemmtune.spaces.cute.decode.tiling import Tiling

SPLIT = Tiling(rows=4, columns=2, lanes_k=32, warps_n=1, warps_k=4, split_k=2, unroll=1, stages=4)
TASK = Task(Problem.parse("4x4096x8192:bf16:nt"), catalogue.device("H200"), "cute_gemv")


def test_the_share_of_each_warp_and_block():
    wide = Tiling(rows=16, columns=16, lanes_k=4, warps_n=2, warps_k=4, split_k=3, unroll=2, stages=3, shares_a=True)
    assert (wide.threads, wide.tile_n, wide.parts, wide.chunk) == (256, 32, 12, 8)
    assert (wide.rows_per_lane, wide.sharers, wide.columns_per_lane, wide.loads) == (2, 2, 2, 6)
    assert (wide.tile, wide.slice) == (512, 171)
    assert wide.shared_bytes == 16 * 6 * 3 * 256 + 4 * 12 * 171
    assert [wide.chunks_of_part(800, part) for part in (0, 3, 4, 11)] == [9, 9, 8, 8]  # 100 chunks for 12 parts
    assert wide.vector(part=1, step=2, load=1, lane_k=3) == ((1 + 2 * 12) * 2 + 1) * 4 + 3


def test_features_are_logarithms_of_what_blocks_do():
    # 49,280 B of shared memory: four blocks per SM, 528 at once, eight waves of 4096.
    assert features(TASK, SPLIT) == pytest.approx(
        {
            "blocks per SM": log2(4096 / 132),
            "waves": 3,
            "tail": log2(8 * 528 / 4096),
            "busiest SM": log2(32 * 132 / 4096),
            "padding": 0,
            "bytes in flight per SM": log2(4 * 16 * 128 * 2 * 3),
            "chunks of a warp": 2,
            "loads of a chunk": log2(6),
            "share of A in the loads": log2(3),
            "warps of a sum": 3,
            "blocks of a cluster": 1,
            "threads": 7,
        }
    )


@pytest.mark.parametrize(
    ("warps_k", "stages", "resident"),
    [
        (1, 1, 32),  # 113 by shared memory, 64 by threads: the most that an SM holds
        (4, 1, 16),  # 45 by shared memory, 16 by threads
        (4, 8, 6),  # 32,784 B
    ],
)
def test_the_tightest_bound_holds_the_blocks_per_sm(warps_k, stages, resident):
    tiling = Tiling(1, 1, 32, 1, warps_k, 1, 1, stages)
    task = Task(Problem.parse(f"1x{132 * 4096}x65536:bf16:nt"), TASK.device, "cute_gemv")
    assert 2 ** features(task, tiling)["waves"] == pytest.approx(-(-4096 // resident))


def test_a_rough_time_is_the_slower_of_loads_and_sums_and_what_blocks_wait():
    elements = 32 * 2 * 8192 / 2  # of B, for the busiest SM
    loading = elements * 2 * 3 / (4800 / 132 * 1.4)
    waiting = 7 * 1090 + 850 + 7 * 1740 + 15 * 8 + 4 * 4
    assert rough_time_ns(TASK, SPLIT) == pytest.approx(1630 + loading + waiting)


def test_a_rough_time_of_one_wave_without_a_cluster():
    tiling = Tiling(rows=16, columns=16, lanes_k=4, warps_n=1, warps_k=4, split_k=1, unroll=1, stages=4)
    task = Task(Problem.parse("16x2048x8192:bf16:nt"), TASK.device, "cute_splitk")
    nbytes = 16 * 8192 * 2
    assert rough_time_ns(task, tiling) == pytest.approx(1630 + nbytes * 2 / (4800 / 132 * 1.4) + 15 * 4 + 4 * 64)


def test_sums_of_many_rows_by_plain_cores_take_longer_than_loads():
    tiling = Tiling(rows=64, columns=8, lanes_k=32, warps_n=1, warps_k=4, split_k=1, unroll=1, stages=1, shares_a=True)
    many = Tiling(rows=64, columns=64, lanes_k=32, warps_n=1, warps_k=1, split_k=1, unroll=1, stages=1)
    task = Task(Problem.parse("64x1024x4096:bf16:nt"), TASK.device, "cute_gemv")
    assert rough_time_ns(task, tiling) - rough_time_ns(task, many) != 0
    elements = 64 * 4096
    assert rough_time_ns(task, many) == pytest.approx(1630 + elements * (64 + 1 + 1) / 218 + 15 + 4 * 16)
