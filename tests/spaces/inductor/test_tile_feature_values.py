"""Features of Inductor's tiles, computed by hand."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.spaces.inductor.tile_features import Tiles, tiled_features


def features(problem, sku, *tile):
    task = Task(Problem.parse(problem), catalogue.device(sku), "triton_mm")
    return {name: value[0] for name, value in Tiles(*(np.array([x]) for x in tile)).features(task).items()}


def test_features_are_logarithms_of_what_tiles_do():
    # 33 × 32 tiles, two blocks per SM: 98,304 B of shared memory, and 104 registers of 256 threads.
    assert features("4100x4096x4097:bf16:nt", "H200", 128, 128, 64, 8, 98_304) == pytest.approx(
        {
            "tiles per SM": log2(1056 / 132),
            "blocks per SM": 1,
            "waves": 2,
            "tail": 0,
            "imbalance": 0,
            "padding": log2(33 * 128 / 4100 * 65 * 64 / 4097),
            "traffic of the busiest SM": log2(8 * 256),
            "work of the busiest SM": log2(8 * 128 * 128 * 65 * 64),
            "bytes per flop": log2(2 / 128 * 2),
            "steps": log2(65),
            "accumulators per thread": 6,
            "shared memory": log2(98_304),
            "bytes in flight": log2(2 * 98_304),
            "warps together": 4,
            "alignment of rows": 1,  # rows of 8194 B
        }
    )


def test_a_last_wave_that_is_not_full_is_a_tail():
    found = features("2048x2048x4096:bf16:nt", "H200", 128, 128, 64, 8, 98_304)  # 256 tiles, 264 at once
    assert (found["waves"], found["tail"], found["imbalance"]) == pytest.approx((0, log2(264 / 256), log2(264 / 256)))
    assert found["alignment of rows"] == 4
    assert features("3x2048x2048x4096:bf16:nt:bmm", "H200", 128, 128, 64, 8, 98_304)["waves"] == pytest.approx(log2(3))


@pytest.mark.parametrize(
    ("tile", "sku", "blocks"),
    [
        ((128, 128, 64, 8, 110_000), "H200", 2),  # 65,536 registers / (256 · 104)
        ((128, 128, 64, 8, 120_000), "H200", 1),  # shared memory
        ((64, 64, 64, 4, 20_000), "H200", 7),  # registers: 128 · 72
        ((64, 64, 64, 4, 40_000), "H200", 5),  # shared memory
        ((4, 4, 64, 1, 1), "RTX-4090", 48),  # threads: 1536 / 32
        ((256, 256, 64, 4, 250_000), "H200", 1),  # at least one
    ],
)
def test_the_tightest_of_shared_memory_threads_and_registers_holds(tile, sku, blocks):
    assert 2 ** features("8192x8192x4096:bf16:nt", sku, *tile)["blocks per SM"] == pytest.approx(blocks)


def test_a_group_has_no_more_rows_of_tiles_than_there_are():
    tile = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 128, "num_warps": 4}
    configs = [Config({**tile, "GROUP_M": group}) for group in (1, 4, 8)]
    task = Task(Problem.parse("200x4096x4096:bf16:nt"), catalogue.device("H200"), "triton_mm")
    found = tiled_features(task, configs, lambda _, values: values["BLOCK_M"] * 256)
    assert [2**each for each in found["group"]] == pytest.approx([1, 4, 4])  # 200 rows are 4 tiles
    assert found["shared memory"] == pytest.approx([14, 14, 14])
