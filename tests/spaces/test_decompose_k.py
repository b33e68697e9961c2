"""Split of k into a batch of the vendor library's products: which splits are right, and their builds."""

from __future__ import annotations

import json

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.testing.space_conformance import check_build
from gemmtune.spaces.decompose_k import DecomposeKSpace

SPACE = DecomposeKSpace()


def task(problem):
    return Task(Problem.parse(problem), catalogue.device("H200"), "decompose_k")


def splits(problem):
    return [config.integer("k_split") for config in SPACE.points(task(problem)) if SPACE.check(task(problem), config)]


@pytest.mark.parametrize(
    ("problem", "feasible"),
    [
        ("32x32x4096:bf16:nn", [2, 4, 8, 16, 32]),  # parts of 128 at least
        ("256x16x2048:bf16:tn", [2, 4, 8]),  # as many as k is longer than m
        ("16x16x3072:bf16:nt:lda=4096", [2, 3, 4, 6, 8, 12, 16, 24]),
        ("16x16x1044:bf16:nn", []),  # parts of 522 and 261 are not aligned to 16 B
        ("16x16x1044:fp32:nn", [3]),  # 348 of fp32 are
        ("512x512x512:bf16:nt", []),
    ],
)
def test_parts_divide_k_and_are_long_and_aligned(problem, feasible):
    assert splits(problem) == feasible


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (":addmm", "operation"),
        (":dynamic_m=true", "operation"),
        (":epilogue=relu", "operation"),
        (":out_dtype=fp32", "dtypes"),
        (":acc_dtype=fp16", "dtypes"),
    ],
)
def test_what_inductor_does_not_split_is_rejected(change, rule):
    assert SPACE.check(task(f"32x32x65536:bf16:nn{change}"), Config({"k_split": 16})).rule == rule


def test_seeds_fill_the_gpu_about_once():
    first = [SPACE.seeds(task(problem))[0].integer("k_split") for problem in ("32x32x65536:bf16", "64x512x65536:bf16")]
    assert first == [128, 16]  # 132 SMs, with 1 and 8 blocks per part


@pytest.mark.slow(20)
def test_the_kernel_that_sums_the_parts_is_built(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    wanted = task("16x1024x24576:fp16:tn")
    artifact = check_build(DecomposeKSpace, wanted, Config({"k_split": 3}), tmp_path)
    launch = dict(artifact.launch)
    (variants,) = json.loads(str(launch["kernels"]))
    assert launch["parts"] == 3
    assert all(variant["arguments"][:2] == ["product", "out"] for variant in variants)


def test_a_sum_of_many_parts_is_two_kernels_that_share_a_tensor(tmp_path):
    pytest.importorskip("triton", reason="triton is not installed")
    one = task("32x32x65536:bf16:nn")
    kernels = json.loads(str(dict(SPACE.build(one, Config({"k_split": 256}), tmp_path).launch)["kernels"]))
    shared = [variants[0]["arguments"][1 - place] for place, variants in enumerate(kernels)]
    assert len(kernels) == 2
    assert shared[0] == shared[1] != "product"
    assert {variants[0]["scratch"][shared[0]] for variants in kernels} == {2 * 32 * 32 * 4}
