"""Arguments of QuACK's kernels, with and without an epilogue, and with A and B exchanged."""

from __future__ import annotations

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.spaces.quack.call import call_of

PLAIN, FUSED = "64x128x256:bf16:nt", "64x128x256:bf16:nt:epilogue=gelu.mul(matrix).add(row)"


def call(problem, **launch):
    launch = {"cluster_size": 2, "max_swizzle_size": 8, "swap_ab": 0} | launch
    artifact = Artifact("key", "quack_gemm", "", "digest", tuple(launch.items()), None, 0.1, Toolchain(()))
    return call_of(artifact, Task(Problem.parse(problem), catalogue.device("H200"), "quack_gemm"))


@pytest.mark.parametrize(
    ("problem", "swap", "operands"),
    [
        (PLAIN, 0, ["a", "b", "out"]),
        (PLAIN, 1, ["b.mT", "a", "out.mT"]),
        (FUSED, 0, ["a", "b", "out"]),
        (FUSED, 1, ["b", "a", "out"]),
        ("64x128x256:bf16:nt:addmm:bias=vector", 1, ["b", "a", "out"]),
    ],
)
def test_a_kernel_that_exchanges_its_operands_transposes_those_of_a_plain_product(problem, swap, operands):
    assert call(problem, swap_ab=swap)[:3] == operands


def test_a_scheduler_has_the_clusters_and_the_swizzle_of_the_launch():
    first = call(PLAIN, cluster_size=4, max_swizzle_size=1)
    assert first[3:] == [None, (None,) * 12, ("clusters.4", None, 1, None, None, None), None, None, None]


def test_an_epilogue_has_its_tensors_in_order_and_vectors_with_one_dimension():
    assert call(FUSED)[4] == ("matrix", "row.flat", None, None)
    assert call("64x128x256:bf16:nt:addmm:bias=vector")[4] == ("bias", None, None)  # the bias has one already
