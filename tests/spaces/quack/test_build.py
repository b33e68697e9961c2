"""Kernels of QuACK, compiled for GPUs that are not here."""

from __future__ import annotations

import pickle
import time
from importlib.util import find_spec

import pytest

from gemmtune.engine.measure.builder import BuildFailure, BuildJob, builder_pool
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.engine.records.task import Task
from gemmtune.spaces.grouped.quack_grouped import QuackGroupedSpace
from gemmtune.spaces.quack_gemm import QuackGemmSpace

pytestmark = [
    pytest.mark.slow(12, together="probes"),
    pytest.mark.skipif(
        find_spec("quack") is None or find_spec("torch") is None, reason="quack-kernels or torch is not installed"
    ),
]

SPACE = QuackGemmSpace()
CONFIG = {"tile_m": 128, "tile_n": 64, "cluster_m": 2, "cluster_n": 1, "max_swizzle_size": 16}
CONFIG |= {"pingpong": False, "swap_ab": False, "is_dynamic_persistent": False}
SM90 = Config(CONFIG | {"pingpong": True, "swap_ab": True})
OTHER_ORDER = Config(dict(SM90) | {"max_swizzle_size": 4})
SM100 = Config(CONFIG | {"is_dynamic_persistent": True})
IMPOSSIBLE = [Config(CONFIG | {"tile_m": 257}), Config(CONFIG | {"tile_n": 8192})]


def task(problem, sku):
    return Task(Problem.parse(problem), catalogue.device(sku), "quack_gemm")


HOPPER, BLACKWELL = task("512x1024x256:bf16:nt", "H200"), task("512x1024x256:fp16:tn:out_dtype=fp32", "B200")

SCALED = [
    task(f"512x1024x256:e4m3:nt:epilogue=mul(scalar[fp32]).mul(scalar2[fp32]).add(row){accumulation}", "H200")
    for accumulation in ("", ":accumulation=exact")
]

GROUPED = [
    Task(Grouped.parse(f"grouped:{product}"), catalogue.device("H200"), "quack_grouped")
    for product in (
        "rows:m64:g4:n256:k128:bf16:nt",
        "inner:m64:g4:n256:k128:bf16:tn:routing=counts(0.128.0.0)",
        "rows:m64:g4:n256:k128:e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32])",
    )
]
FLAT = Config({name: value for name, value in (CONFIG | {"tile_m": 64, "cluster_m": 1}).items() if name != "swap_ab"})


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build one config per architecture in a pool, one of them again, and impossible ones."""
    jobs = [BuildJob(HOPPER, SM90), BuildJob(BLACKWELL, SM100), BuildJob(task("16x4096x4096:bf16:nt", "H100"), SM90)]
    jobs += [BuildJob(of, config) for of in (HOPPER, BLACKWELL) for config in IMPOSSIBLE]
    jobs += [BuildJob(of, SM90) for of in SCALED]
    jobs += [BuildJob(of, FLAT) for of in GROUPED]
    jobs += [BuildJob(HOPPER, OTHER_ORDER)]
    pool, found = builder_pool(("quack_gemm", "quack_grouped"), tmp_path_factory.mktemp("built"), 1, 100.0), {}
    try:
        for job in jobs:
            pool.submit(job)
        until = time.monotonic() + 110
        while len(found) < len(jobs) and time.monotonic() < until:
            for outcome in pool.collect():
                assert outcome.result is not None, outcome.reason
                found[outcome.job] = outcome.result
            time.sleep(0.05)
    finally:
        pool.close()
    return [found[job] for job in jobs]


@pytest.mark.parametrize(
    ("number", "of", "config", "launch"),
    [
        (0, HOPPER, SM90, {"swap_ab": 1, "cluster_size": 2, "max_swizzle_size": 16}),
        (1, BLACKWELL, SM100, {"swap_ab": 0, "cluster_size": 2, "max_swizzle_size": 16}),
    ],
)
def test_the_builders_compile_for_an_absent_architecture(built, number, of, config, launch):
    artifact = built[number]
    assert isinstance(artifact, Artifact), artifact
    assert artifact.key == SPACE.artifact_key(of, config)
    assert artifact.toolchain == SPACE.toolchain()
    assert dict(artifact.launch).items() > launch.items()
    assert dict(artifact.launch)["code_bytes"] > 1000
    # two warp groups compute and one loads; on Blackwell four warps store, and one each loads A and B, loads C,
    # issues the MMAs, and schedules
    assert artifact.resources.threads == (384 if of is HOPPER else 256)
    assert artifact.resources.spill_bytes == 0
    assert 128 * 1024 < artifact.resources.shared_bytes <= of.device.shared_memory_per_block_bytes


def test_the_binary_depends_on_neither_sizes_nor_sms(built):
    one, _, other = built[:3]
    assert one.key == other.key
    assert one.digest == other.digest
    assert one.resources == other.resources
    assert one.path != other.path  # each task deletes its own


def test_configs_that_a_launch_alone_tells_apart_are_compiled_once(built):
    one, other = built[0], built[12]
    assert (one.digest, one.build_seconds) == (other.digest, other.build_seconds)
    assert other.key == SPACE.artifact_key(HOPPER, OTHER_ORDER) != one.key
    orders = [SPACE.deployed_call(each, HOPPER)[5][2] for each in (one, other)]
    assert orders == [16, 4]


def test_scaled_kernels_with_fast_and_exact_sums_are_others_and_spill_nothing(built):
    fast, exact = built[7:9]
    assert fast.digest != exact.digest
    assert fast.key != exact.key
    assert fast.resources.spill_bytes == exact.resources.spill_bytes == 0
    tensors = ("scalar.flat", "scalar2.flat", "row.flat")
    assert SPACE.deployed_call(exact, SCALED[1])[4] == (*tensors, None, None)


def test_an_impossible_config_is_refused_with_its_reason(built):
    reasons = [failure.reason for failure in built[3:7] if isinstance(failure, BuildFailure)]
    assert len(reasons) == 4
    assert reasons[0] == "ValueError: CTA tile shape M must be 64/128/192/256/320"
    assert "divisible by 16 and <= 256" in reasons[1]
    assert all("expects the M-mode" in reason or "expects the N-mode" in reason for reason in reasons[2:])


# Without a GPU the call ends at the first tensor, with what the kernel expects.
_LOAD = """
import pickle, sys, torch
from gemmtune.spaces.cute import artifact as binary
from gemmtune.spaces.quack.call import call_of
from gemmtune.spaces.quack_gemm import QuackGemmSpace
from gemmtune.spaces.grouped.quack_grouped import QuackGroupedSpace
(of, artifact), *grouped = pickle.loads(bytes.fromhex(sys.argv[1]))
binary._clusters_here = of.device.max_active_clusters  # no GPU is here to be asked
kernel = QuackGemmSpace().load(artifact, of)
scheduler = call_of(artifact, of)[5]
print("quack" in sys.modules, len(scheduler), scheduler[0])
m, n, k = of.problem.m, of.problem.n, of.problem.k
a, b, out = (torch.empty(size, dtype=torch.bfloat16) for size in ((m, k), (k, n), (m, n)))
try:
    kernel(a, b, out)
except ValueError as error:
    print(error)
kernel.close()
for of, artifact in grouped:
    kernel = QuackGroupedSpace().load(artifact, of)
    dtype, (of_a, of_b, _) = getattr(torch, of.problem.dtype.torch_name), of.problem.shapes
    a, b, out = (torch.empty(shape, dtype=dtype) for shape in of.problem.shapes)
    out = out.bfloat16()
    a, b = (x if layout == "n" else x.mT.contiguous().mT for x, layout in zip((a, b), of.problem.layout))
    scales = (torch.empty(of_a[0]), torch.empty(of_b[0], of_b[-1])) if of.problem.epilogue else ()
    try:
        kernel(a, b, out, *scales, torch.zeros(of.problem.groups + 1, dtype=torch.int32)[1:])
    except ValueError as error:
        print(error)
    kernel.close()
print("quack" in sys.modules)
"""


def test_another_process_loads_it_without_quack(built, probe, tmp_path):
    passed = pickle.dumps([(HOPPER, built[0]), *zip(GROUPED, built[9:12], strict=True)]).hex()
    (tmp_path / "loading.py").write_text(_LOAD)
    done = probe(tmp_path / "loading.py", tmp_path, passed)
    assert done.returncode == 0, done.stderr[-3000:]
    first, *signature = done.stdout.splitlines()
    assert first == "False 6 clusters.2"
    expected = "\n".join(signature)
    assert "epilogue_args: Tuple[" + ", ".join(["None"] * 12) + "]" in expected
    assert "scheduler_args: Tuple[int32, None, int32, None, None, None]" in expected
    assert "expected device_type=cuda" in expected


@pytest.mark.parametrize(("number", "of"), [*enumerate(GROUPED, 9)])
def test_a_kernel_of_groups_is_compiled_for_all_sizes_and_routings(built, number, of):
    artifact, other = built[number], Task(of.problem.resized(70), of.device, of.space)
    assert isinstance(artifact, Artifact), artifact
    assert artifact.key == QuackGroupedSpace().artifact_key(other, FLAT)
    assert artifact.resources.spill_bytes == 0
    assert artifact.resources.shared_bytes <= of.device.shared_memory_per_block_bytes
