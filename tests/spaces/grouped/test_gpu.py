"""Kernels of grouped products, measured and checked by a worker's bench on the GPU that is here."""

from __future__ import annotations

from typing import Any

import pytest

from gemmtune.engine.measure.jobs import MeasureJob
from gemmtune.engine.measure.protocols import protocol
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.toolchain.gpu_info import present_device

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("quack", reason="quack-kernels is not installed")

DEVICE = present_device()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        DEVICE is None or DEVICE.arch not in ("sm_90a", "sm_100a"),
        reason="needs a GPU of sm_90a or sm_100a and gemmtune[triton,cute]",
    ),
    pytest.mark.timeout(400),
    # what quack-kernels 0.6.5 imports: names that nvidia-cutlass-dsl 4.8 deprecates, and parts of torch
    pytest.mark.filterwarnings("ignore:cutlass.utils:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
]

ONE_OF_40 = "counts(0.0.5000" + ".0" * 37 + ")"
RAGGED = "counts(1.0.63.64.65.127.128.129.0.0.255.257.7.8.9.0)"
PRODUCTS = (
    "grouped:rows:m4096:g64:n1536:k2048:bf16:nt",
    "grouped:rows:m4096:g64:n1536:k2048:bf16:nn:routing=zipf(1.2)",
    f"grouped:rows:m1113:g16:n1032:k520:bf16:nt:routing={RAGGED}",
    f"grouped:rows:m5000:g40:n768:k512:bf16:nt:routing={ONE_OF_40}",
    "grouped:rows:m1:g64:n768:k2048:bf16:nt",
    "grouped:inner:m1536:g64:n2048:k4096:bf16:tn:routing=zipf",
    f"grouped:inner:m1032:g16:n520:k1113:bf16:tn:routing={RAGGED}",
    f"grouped:inner:m768:g40:n512:k5000:bf16:tn:routing={ONE_OF_40}",
    "grouped:inner:m768:g64:n512:k1:bf16:tn",
)
SCALED = "e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32])"
FP8 = (
    f"grouped:rows:m1113:g16:n1040:k528:{SCALED}:routing={RAGGED}",
    f"grouped:rows:m5000:g40:n768:k512:{SCALED}:routing={ONE_OF_40}",
    f"grouped:rows:m4096:g64:n1536:k2048:{SCALED}:accumulation=exact:routing=zipf(1.2)",
)
FP16 = ("grouped:rows:m513:g16:n1032:k520:fp16:nt", "grouped:inner:m1032:g16:n520:k513:fp16:tn")


def config(tile_m, tile_n, cluster_m=1, cluster_n=1, **flags):
    sizes = {"tile_m": tile_m, "tile_n": tile_n, "cluster_m": cluster_m, "cluster_n": cluster_n}
    flags = {"pingpong": False, "is_dynamic_persistent": False, "max_swizzle_size": 8} | flags
    return Config(sizes | flags)


CONFIGS = {
    "sm_90a": [
        config(64, 64, pingpong=True),
        config(64, 256),
        config(128, 192, 2, 1, pingpong=True),
        config(256, 128, 1, 2, max_swizzle_size=4),
        config(128, 256, 2, 1),
    ],
    "sm_100a": [config(256, 256, 2, 1, is_dynamic_persistent=True), config(128, 128, 1, 2), config(128, 64)],
}

TRITON = [
    Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "num_stages": stages, "num_warps": warps})
    for m, n, k, stages, warps in ((16, 64, 128, 4, 4), (64, 128, 64, 3, 4), (128, 256, 64, 3, 8))
]


@pytest.fixture(scope="module")
def bench():
    from gemmtune.engine.measure.bench import Bench

    return Bench(protocol("graph-cold-l2"))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build each kernel once; a binary serves all sizes and routings."""
    folder, known = tmp_path_factory.mktemp("built"), {}

    def build(task, config):
        space = registry.space(task.space)
        key = space.artifact_key(task, config)
        if key not in known:
            known[key] = space.build(task, config, folder)
        return known[key]

    return build


def tasks_of(product):
    task = Task(product, DEVICE, "quack_grouped")
    few = product in map(Grouped.parse, (*FP16, FP8[2])) or product.layout == "nn"  # a build takes seconds
    configs = CONFIGS[DEVICE.arch][: 2 if few else None]
    of_quack = [(task, each) for each in configs if registry.space("quack_grouped").check(task, each)]
    assert of_quack
    vendor, template = (Task(product, DEVICE, name) for name in ("aten_grouped", "triton_grouped"))
    of_torch = [(vendor, each) for each in registry.space("aten_grouped").seeds(vendor)]
    return [*of_torch, *of_quack, *((template, each) for each in TRITON if not product.epilogue)]


@pytest.mark.parametrize("name", [*PRODUCTS, *FP16, *FP8])
def test_every_kernel_is_right_under_every_routing(bench, built, name):
    for task, each in tasks_of(Grouped.parse(name)):
        reading = bench(MeasureJob(task, each, built(task, each)))
        assert reading.status is Status.OK, f"{task.space} {each}: {reading.reason}"
        assert reading.samples_ns


@pytest.mark.parametrize(
    "name",
    [
        "grouped:rows:m16:g4:n64:k128:bf16:nt",
        "grouped:inner:m128:g4:n64:k16:bf16:tn",
        f"grouped:rows:m16:g4:n64:k128:{SCALED}",
    ],
)
def test_no_tokens_give_nothing_or_zeros(built, name):
    import torch

    product = Grouped.parse(name)
    task = Task(product, DEVICE, "quack_grouped")
    kernel = registry.space("quack_grouped").load(built(task, CONFIGS[DEVICE.arch][-1]), task)
    rows, depth = (0, product.k) if product.range_size == "m" else (product.m, 0)
    dtype = getattr(torch, product.dtype.torch_name)
    a = torch.empty(depth, rows, device="cuda", dtype=dtype).mT
    b = torch.empty(product.groups, depth, product.n, device="cuda", dtype=dtype)
    scales = [torch.empty(size, device="cuda") for size in ((rows,), (product.groups, product.n))]
    out = torch.full(product.resized(1).shapes[2], float("nan"), device="cuda", dtype=torch.bfloat16)
    out = out[:0] if product.range_size == "m" else out
    scales = scales if product.epilogue else []
    kernel(a, b if depth else b[0], out, *scales, torch.zeros(product.groups, dtype=torch.int32, device="cuda"))
    assert not out.isnan().any()
    kernel.close()


@pytest.mark.parametrize("name", [PRODUCTS[0], FP8[0]])
def test_ends_that_are_an_odd_slice_of_another_tensor_are_read(built, name):
    import torch

    from gemmtune.engine.measure.operands.operands import make_operands
    from gemmtune.engine.measure.operands.reference import ReferenceResult

    product = Grouped.parse(name)
    task, each = Task(product, DEVICE, "quack_grouped"), CONFIGS[DEVICE.arch][-1]
    operands: Any = make_operands(product, torch.device("cuda"))
    kernel = registry.space("quack_grouped").load(built(task, each), task)
    *others, offs = operands.arguments
    kernel(*others, torch.cat([offs.new_full((1,), -7), offs])[1:])
    assert ReferenceResult(product, operands).check(operands.out).reason == ""
    kernel.close()
