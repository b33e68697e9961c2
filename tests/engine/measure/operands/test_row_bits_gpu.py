"""Bits of rows on a real GPU: kernels of one order of summation agree at every m, as the space states."""

from __future__ import annotations

import pytest

from gemmtune.engine.measure.jobs import MeasureJob
from gemmtune.engine.measure.protocols import protocol
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.toolchain.gpu_info import present_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(present_device() is None, reason="needs a CUDA GPU and gemmtune[triton]"),
]

TILE = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_stages", "num_warps")
TILES = (
    (64, 64, 64, 8, 3, 4),
    (128, 128, 64, 8, 4, 8),
    (64, 256, 64, 4, 2, 4),
    (16, 64, 64, 8, 5, 4),
    (32, 32, 64, 8, 3, 2),
    (16, 64, 256, 8, 3, 4),
    (64, 64, 32, 8, 4, 4),
    (128, 128, 128, 8, 3, 8),
)
SIZES = (2, 3, 16, 100, 1024, 4096)


@pytest.mark.parametrize("rest", ["bf16:nt", "fp16:nn:addmm"])
def test_kernels_of_one_order_have_equal_bits_at_every_m(rest, tmp_path):
    from gemmtune.engine.measure.bench import Bench

    device, space, bench = present_device(), registry.space("triton_mm"), Bench(protocol("graph-cold-l2+bits"))
    digests: dict[str, set[str]] = {}
    for m in SIZES:
        task = Task(Problem.parse(f"{m}x1024x4096:{rest}:dynamic_m=true"), device, "triton_mm")
        for values in TILES:
            config = Config(dict(zip(TILE, values, strict=True)))
            reading = bench(MeasureJob(task, config, space.build(task, config, tmp_path)))
            assert reading.status is Status.OK, reading.reason
            digests.setdefault(space.summation(task, config), set()).add(reading.estimate.bits)
    assert all(len(found) == 1 and "" not in found for found in digests.values()), digests


def test_the_vendor_library_has_no_digest(tmp_path):
    from gemmtune.engine.measure.bench import Bench

    task = Task(Problem.parse("64x1024x4096"), present_device(), "aten")
    aten = registry.space("aten")
    reading = Bench(protocol("graph-cold-l2+bits"))(
        MeasureJob(task, Config({}), aten.build(task, Config({}), tmp_path))
    )
    assert (reading.status, reading.estimate.bits) == (Status.OK, "")
