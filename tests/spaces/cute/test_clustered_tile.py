"""Figures of a cluster of tiles on a problem, worked out by hand."""

from __future__ import annotations

import math
from itertools import islice

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.spaces.cute.clustered_tile import ClusteredTile

H200, B200 = catalogue.device("H200"), catalogue.device("B200")


def task(problem, space="cute_gemm", device=H200):
    return Task(Problem.parse(problem), device, space)


def test_waves_traffic_and_padding_of_single_blocks():
    features = ClusteredTile(128, 256, 1, 1).features(task("2048x4096x4096:bf16:nt"))
    assert features["tiles per SM"] == pytest.approx(math.log2(256 / 132))
    assert features["waves"] == 1.0
    assert features["tail"] == pytest.approx(math.log2(2 * 132 / 256))
    assert features["padding"] == features["idle SMs"] == features["blocks of a cluster"] == 0.0
    assert features["traffic of the busiest SM"] == pytest.approx(math.log2(2 * 384))
    assert features["steps"] == 6.0  # 4,096 elements of 2 B, 128 B at a time
    assert features["accumulators"] == 15.0
    assert features["stages that fit"] == pytest.approx(math.log2(232_448 / (384 * 128)))


def test_a_cluster_shares_what_it_loads_and_pads_the_grid_to_whole_clusters():
    features = ClusteredTile(128, 128, 2, 1).features(task("384x4096x4096:bf16:nt"))
    assert features["traffic of the busiest SM"] - features["traffic of its share"] == pytest.approx(math.log2(4 / 3))
    assert features["padding"] == pytest.approx(math.log2(512 / 384))
    assert features["blocks of a cluster"] == 1.0


def test_a_pair_of_blocks_halves_the_rows_of_its_tile():
    space, names = registry.space("cute_gemm"), ("PersistentDenseGemmOperator", 256, 128, 2, 1, True, True, "static")
    params = [param.name for param in space.params(task("4096x4096x4096:bf16:nt", device=B200))]
    config = Config(dict(zip(params, names, strict=True)))
    blackwell = task("4096x4096x4096:bf16:nt", device=B200)
    assert space.features(blackwell, config).items() >= ClusteredTile(128, 128, 2, 1).features(blackwell).items()


def test_swapped_operands_exchange_rows_and_columns():
    space, hopper = registry.space("quack_gemm"), task("4096x512x4096:bf16:nt", "quack_gemm")
    config = {
        "tile_m": 128,
        "tile_n": 64,
        "cluster_m": 2,
        "cluster_n": 1,
        "pingpong": False,
        "is_dynamic_persistent": False,
        "max_swizzle_size": 8,
    }
    plain, swapped = (space.features(hopper, Config({**config, "swap_ab": swap})) for swap in (False, True))
    assert plain.items() >= ClusteredTile(128, 64, 2, 1).features(hopper).items()
    assert swapped.items() >= ClusteredTile(64, 128, 1, 2).features(hopper).items()
    assert 2 ** plain["group"] == 8.0  # of the 16 clusters of 256 rows, or the 8 of 64 columns, at most 8 together


@pytest.mark.parametrize("space", ["cute_gemm", "quack_gemm"])
@pytest.mark.parametrize("device", [H200, B200])
def test_every_config_has_the_same_finite_features(space, device):
    names = set()
    for problem in ("16x4096x4096:bf16:nt", "2048x4096x4096:bf16:nt"):
        of, space_of = task(problem, space, device), registry.space(space)
        feasible = (config for config in space_of.points(of) if space_of.check(of, config))
        for config in islice(feasible, 0, None, 7):
            features = space_of.features(of, config)
            assert all(math.isfinite(value) for value in features.values())
            names.add(tuple(features))
    assert len(names) == 1
