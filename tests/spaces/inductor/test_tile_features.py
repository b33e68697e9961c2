"""Features of a tile on a problem, worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.search.task_features import TaskFeatures
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes
from gemmtune.spaces.inductor.tile_features import Tiles

H200 = catalogue.device("H200")


def features_of(task, *tile):
    return {name: value for name, [value] in Tiles(*(np.array([size]) for size in tile)).features(task).items()}


def test_tiles_waves_and_traffic_of_a_prefill_problem():
    task = Task(Problem.parse("2048x4096x4096:bf16:nt"), H200, "triton_mm")
    features = features_of(task, 128, 256, 64, 8, 4 * (128 + 256) * 64 * 2)
    assert features["tiles per SM"] == pytest.approx(math.log2(256 / 132))
    assert features["blocks per SM"] == 0.0  # 196,608 B of shared memory each
    assert features["waves"] == 1.0
    assert features["tail"] == pytest.approx(math.log2(2 * 132 / 256))
    assert features["imbalance"] == pytest.approx(math.log2(2 * 132 / 256))
    assert features["padding"] == 0.0
    assert features["traffic of the busiest SM"] == pytest.approx(math.log2(2 * (128 + 256)))
    assert features["steps"] == 6.0
    assert features["accumulators per thread"] == 7.0
    assert features["alignment of rows"] == 4.0


def test_unaligned_rows_change_a_feature():
    task = Task(Problem.parse("1024x1280x3420:bf16:nt"), H200, "triton_mm")
    features = features_of(task, 64, 64, 128, 4, 32768)
    assert features["alignment of rows"] == 3.0  # 6,840 B divide by 8, not by 16
    assert features["padding"] == pytest.approx(math.log2(27 * 128 / 3420))


def test_rows_of_a_transposed_operand_lie_along_its_other_dimension():
    task = Task(Problem.parse("1280x5120x1500:bf16:tn"), H200, "triton_mm")
    assert features_of(task, 64, 64, 128, 4, 32768)["alignment of rows"] == 4.0
    task = Task(Problem.parse("1280x30522x2048:bf16:nn"), H200, "triton_mm")
    assert features_of(task, 64, 64, 128, 4, 32768)["alignment of rows"] == 2.0  # B's rows of 61,044 B


def test_every_config_of_triton_mm_has_the_same_features_on_every_problem():
    names = set()
    for landscape in read_landscapes(embedded("triton_mm")[0]):
        describe = TaskFeatures(registry.space("triton_mm"), Task(landscape.problem, H200, "triton_mm"))
        for config in list(landscape.points)[::97]:
            known = describe(config)
            assert all(math.isfinite(value) for value in known.values())
            names.add(tuple(known))
    assert len(names) == 1


@pytest.mark.parametrize("space", ["triton_mm", "cute_gemm", "quack_gemm"])
def test_features_of_many_configs_equal_those_of_each_alone(space):
    of, task = registry.space(space), Task(Problem.parse("2048x4096x4096:bf16:nt"), H200, space)
    configs = [config for config in of.points(task) if of.check(task, config)][::7]
    together = of.features_of(task, configs)
    for i, config in enumerate(configs):
        assert {name: values[i] for name, values in together.items()} == of.features(task, config)
    describe = TaskFeatures(of, task)
    alone = [tuple(TaskFeatures(of, task)(config).values()) for config in configs[:3]]
    assert np.array_equal(describe.matrix(configs)[:3], alone)
    assert np.array_equal(describe.matrix(configs[2:0:-1]), alone[2:0:-1])  # those that it knows already
