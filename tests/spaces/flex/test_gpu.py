"""Kernels of attention, measured and checked by a worker's bench on the GPU that is here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.measure.jobs import MeasureJob
from gemmtune.engine.measure.protocols import protocol
from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.toolchain.gpu_info import present_device

pytest.importorskip("torch", reason="torch is not installed")

DEVICE = present_device()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE is None or DEVICE.capability < (8, 0), reason="needs a GPU of sm_80"),
    pytest.mark.timeout(400),
]
CASES = (
    "flex:forward:b2:h8:kvh2:s1024:d128:bf16:mask=causal",
    "flex:forward:b1:h4:s1000:d64:fp16:mask=window(300):score=softcap(20)",
    "flex:forward:b1:h4:s768:d64:bf16",
    "flex:forward:b1:h4:kvh4:s512:d256:bf16:mask=causal_document:documents=5",
    "flex:forward:b1:h4:s512:d64:bf16:mask=prefix(100):block=64",
    "flex:decode:b4:h32:kvh8:q1:kv4096:d128:bf16",
    "flex:decode:b2:h8:kvh2:q5:kv1000:d64:fp16:score=softcap(20)",
    "flex:backward:b2:h8:kvh2:s1024:d128:bf16:mask=causal",
    "flex:backward:b1:h4:s1000:d64:fp16:mask=window(300):score=softcap(20)",
    "flex:backward:b1:h4:s512:d64:bf16:mask=causal_document:documents=5",
    "flex:forward:b2:h4:s512:d64:bf16:mask=and(at(t0,b,q,kv),lt(kv,at(t1,b))):seen=40.30:lengths=40.100",
)
DYNAMIC = (
    "flex:forward:b2:h8:kvh2:s512:d128:bf16:mask=causal:dynamic=s",
    "flex:backward:b1:h4:kvh2:s512:d64:bf16:mask=causal_document:documents=5:dynamic=s",
    "flex:decode:b4:h32:kvh8:q1:kv512:d128:bf16:dynamic=kv",
)
MOST = 3  # configs per case


@pytest.fixture(scope="module")
def bench():
    from gemmtune.engine.measure.bench import Bench

    return Bench(protocol("graph-cold-l2"))


@pytest.mark.parametrize("name", DYNAMIC)
def test_one_binary_is_right_at_other_lengths(bench, name, tmp_path):
    of, space = Task(Flex.parse(name), DEVICE, "flex_attention"), registry.space("flex_attention")
    config = space.seeds(of)[0]
    built = space.build(of, config, tmp_path)
    for length in (128, 1000, 2048):
        reading = bench(MeasureJob(replace(of, problem=of.problem.resized(length)), config, built))
        assert reading.status is Status.OK, f"{length}: {reading.reason}"


@pytest.mark.parametrize("name", [CASES[5], "flex:forward:b2:h8:kvh2:s1024:d128:bf16:mask=causal"])
def test_torchs_attention_is_right(bench, name, tmp_path):
    of, space = Task(Flex.parse(name), DEVICE, "sdpa"), registry.space("sdpa")
    reading = bench(MeasureJob(of, space.seeds(of)[0], space.build(of, space.seeds(of)[0], tmp_path)))
    assert reading.status is Status.OK, reading.reason


@pytest.mark.parametrize("name", CASES)
def test_every_kernel_is_right(bench, name, tmp_path):
    problem = Flex.parse(name)
    # Torch's own default has blocks of 128 queries, which a mask of 64 refuses.
    for kind in ("flex_attention",) if "block=64" in name else ("flex_default", "flex_attention"):
        of, space = Task(problem, DEVICE, kind), registry.space(kind)
        for config in space.seeds(of)[:MOST]:
            reading = bench(MeasureJob(of, config, space.build(of, config, tmp_path)))
            assert reading.status is Status.OK, f"{kind} {config}: {reading.reason}"
            assert reading.samples_ns
