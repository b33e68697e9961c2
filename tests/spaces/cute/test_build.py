"""Operators of the registry, built here for GPUs that are not here."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gemmtune.engine.measure.builder import BuildFailure, BuildJob, builder_pool
from gemmtune.engine.processes.process_pool import wait_for_any
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import BuildError
from gemmtune.engine.testing.space_conformance import check_build
from gemmtune.spaces.cute.cubin import kernel_of
from gemmtune.spaces.cute_gemm import CuteGemmSpace

torch = pytest.importorskip("torch", reason="torch is not installed")
operators = pytest.importorskip("cutlass.operators", reason="nvidia-cutlass-operators is not installed")

from cutlass.base_dsl import env_manager  # noqa: E402 (only where cutlass is installed)
from cutlass.cutlass_dsl import CuTeDSL  # noqa: E402 (only where cutlass is installed)

from gemmtune.engine.toolchain.launching.cute_object import load  # noqa: E402 (it imports torch)
from gemmtune.spaces.cute import build as cute_build  # noqa: E402 (it imports cutlass)
from gemmtune.spaces.cute import target as cute_target  # noqa: E402 (it imports cutlass)

pytestmark = pytest.mark.slow(10, together="probes")

SPACE = CuteGemmSpace()


def config(operator, m, n, cluster=(1, 1), pair=False, store=False, scheduler="none"):
    return Config(
        {
            "operator": operator,
            "mma_tiler_m": m,
            "mma_tiler_n": n,
            "cluster_shape_m": cluster[0],
            "cluster_shape_n": cluster[1],
            "use_2cta_instrs": pair,
            "use_tma_store": store,
            "tile_scheduler": scheduler,
        }
    )


PAIR = config("PersistentDenseGemmOperator", 256, 128, (2, 1), pair=True, store=True, scheduler="static")
TGV = config("TgvGemmOperator", 64, 16)
EPILOGUE = config("PersistentDenseGemmEFCOperator", 128, 64, store=True)
HOPPER = config("Sm90StaticPersistentGemmOperator", 128, 256, (2, 1))
HOPPER_64 = config("Sm90StaticPersistentGemmOperator", 64, 64)
AMPERE = config("Sm80TensorOpGemmOperator", 128, 128)
AMPERE_64 = config("Sm80TensorOpGemmOperator", 64, 64)


def task(problem="512x256x1024:bf16:nt", sku="H200"):
    return Task(Problem.parse(problem), catalogue.device(sku), "cute_gemm")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Kernels for both architectures and what cannot be built, from one pool: (task, config) to outcome."""
    impossible = Config({**PAIR, "cluster_shape_n": 16})
    jobs = [
        BuildJob(task(sku="B200"), PAIR),
        BuildJob(task(sku="B200"), impossible),
        BuildJob(task("16x256x1024:fp16:nt", "B200"), TGV),
        BuildJob(task("512x256x1024:bf16:tn", "B200"), EPILOGUE),
        *(BuildJob(task(sku=sku), HOPPER) for sku in ("H200", "H100-SXM", "H100-PCIe")),
        BuildJob(task("1000x4096x72:bf16:nt"), HOPPER),  # the last one's kernel
        BuildJob(task("512x256x1024:fp16:nn"), AMPERE),
        BuildJob(task("512x256x1024:fp16:nn"), AMPERE_64),
        BuildJob(task("512x256x1021:bf16:nt"), HOPPER),
        BuildJob(task("512x256x1024:e4m3:nt"), HOPPER),
        BuildJob(task("512x256x1024:int8:nn", "B200"), PAIR),
        BuildJob(task("512x256x1024:e4m3:nn"), HOPPER),
        BuildJob(task("512x256x1024:fp16:nt:acc_dtype=fp16:out_dtype=fp32", "B200"), EPILOGUE),
    ]
    pool = builder_pool(("cute_gemm",), tmp_path_factory.mktemp("built"), 2, deadline_seconds=1000.0)
    outcomes = {}
    try:
        for job in jobs:
            pool.submit(job)
        while pool.pending:
            wait_for_any([pool], 30)
            outcomes |= {(o.job.task, o.job.config): o for o in pool.collect()}
    finally:
        pool.close()
    assert {outcome.loss for outcome in outcomes.values()} == {None}
    return {key: outcome.result for key, outcome in outcomes.items()}


BUILT = [
    (task(sku="B200"), PAIR, 192),
    (task("16x256x1024:fp16:nt", "B200"), TGV, 256),
    (task("512x256x1024:bf16:tn", "B200"), EPILOGUE, 224),
    (task(), HOPPER, 384),
    (task("512x256x1024:fp16:nn"), AMPERE, 128),
    (task("512x256x1024:e4m3:nt"), HOPPER, 384),
    (task("512x256x1024:int8:nn", "B200"), PAIR, 192),
]


@pytest.mark.parametrize(("of", "chosen", "threads"), BUILT)
def test_the_pool_builds_a_kernel_for_an_absent_gpu(built, of, chosen, threads):
    artifact = built[of, chosen]
    assert not isinstance(artifact, BuildFailure), artifact.reason
    assert hashlib.sha256(Path(artifact.path).read_bytes()).hexdigest() == artifact.digest
    assert artifact.key == SPACE.artifact_key(of, chosen)
    assert artifact.toolchain == SPACE.toolchain()
    used = artifact.resources
    assert used.threads == threads
    assert 24 <= used.registers <= 255
    assert used.threads * used.registers <= of.device.registers_per_sm
    assert 32 * 1024 <= used.shared_bytes <= of.device.shared_memory_per_block_bytes
    assert used.spill_bytes == 0
    assert dict(artifact.launch)["code_bytes"] > 4096


@pytest.mark.parametrize(("of", "chosen", "threads"), BUILT)
def test_the_resources_are_those_the_cuda_tool_reads(built, of, chosen, threads, tmp_path):
    triton = pytest.importorskip("triton", reason="triton is not installed, which brings cuobjdump")
    data = Path(built[of, chosen].path).read_bytes()
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(data[data.index(b"\x7fELF", 1) :])
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    text = subprocess.run([tool, "-res-usage", cubin], capture_output=True, text=True, check=True).stdout
    registers, frame = re.search(r"REG:(\d+) STACK:(\d+)", text).groups()
    used = built[of, chosen].resources
    assert (used.registers, used.spill_bytes) == (int(registers), int(frame))


def test_an_impossible_config_fails_with_its_reason_and_the_pool_continues(built):
    impossible = Config({**PAIR, "cluster_shape_n": 16})
    assert SPACE.check(task(sku="B200"), impossible).rule == "cluster size"
    failure = built[task(sku="B200"), impossible]
    assert isinstance(failure, BuildFailure)
    assert re.match(
        r"the registry of nvidia-cutlass-operators [\d.]+ has 0 operators for sm_100a that are", failure.reason
    )
    unaligned = built[task("512x256x1021:bf16:nt"), HOPPER]
    assert isinstance(unaligned, BuildFailure)
    assert "has 0 operators for sm_90a" in unaligned.reason


@pytest.mark.parametrize(
    ("problem", "sku", "chosen", "reason"),
    [
        ("512x256x1024:e4m3:nn", "H200", HOPPER, "failed to verify operands"),
        ("512x256x1024:fp16:nt:acc_dtype=fp16:out_dtype=fp32", "B200", EPILOGUE, "acc/d type combination"),
    ],
)
def test_listed_operators_that_do_not_compile_fail_with_the_compilers_reason(built, problem, sku, chosen, reason):
    failure = built[task(problem, sku), chosen]
    assert isinstance(failure, BuildFailure)
    assert reason in failure.reason


def test_a_build_keeps_the_contract(tmp_path):
    check_build(CuteGemmSpace, task(), HOPPER_64, tmp_path)


def test_the_tiles_of_the_ampere_operator_are_one_kernel(built):
    of = task("512x256x1024:fp16:nn")
    assert built[of, AMPERE].digest == built[of, AMPERE_64].digest
    assert built[of, AMPERE].key != built[of, AMPERE_64].key


def test_problems_that_differ_in_size_alone_get_one_binary_in_files_of_their_own(built):
    first, second = built[task(), HOPPER], built[task("1000x4096x72:bf16:nt"), HOPPER]
    assert first.key == second.key
    assert first.digest == second.digest
    assert first.path != second.path
    assert Path(first.path).read_bytes() == Path(second.path).read_bytes()


def test_the_grid_of_a_static_scheduler_is_that_of_the_device(built):
    digests = {sku: built[task(sku=sku), HOPPER].digest for sku in ("H200", "H100-SXM", "H100-PCIe")}
    assert digests["H200"] == digests["H100-SXM"]  # as many multiprocessors
    assert digests["H200"] != digests["H100-PCIe"]


def test_a_kernel_is_loaded_by_a_process_that_did_not_compile_it(built):
    """No GPU runs it here, but the host function knows its operands and asks for them on one."""
    for (of, chosen), operand in (
        ((task(), HOPPER), "bfloat16"),
        ((task("16x256x1024:fp16:nt", "B200"), TGV), "float16"),
    ):
        function = load(Path(built[of, chosen].path).read_bytes)
        a, b, out = (torch.empty(8, 8, dtype=getattr(torch, operand)) for _ in range(3))
        with pytest.raises(ValueError, match=rf"Tensor\(\[n0, n1\], {operand}\).*expected device_type=cuda"):
            function(a, b, out, 0)


def test_loading_imports_no_compiler_and_a_dropped_kernel_is_unloaded(built):
    code = """
import sys
from gemmtune.engine.toolchain.launching.cute_object import load
def mapped(): return "kernel.so" in open("/proc/self/maps").read()
function = load(open(sys.argv[1], "rb").read)
assert mapped()
del function
assert not mapped() and "cutlass" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, built[task(), HOPPER].path], check=True)


def test_class_and_design_identify_an_operator_without_its_name_and_without_the_driver(monkeypatch, tmp_path):
    def asked():
        raise AssertionError("the driver was asked")

    monkeypatch.setattr(env_manager, "get_compute_capability_major_minor", asked)
    del CuTeDSL._get_dsl().envar.arch
    generated = operators.get_operators

    def renamed(*given):
        found = generated(*given)
        for operator in found:
            operator.metadata.operator_name = "another"
        return found

    monkeypatch.setattr(operators, "get_operators", renamed)
    assert SPACE.build(task(), HOPPER, tmp_path).resources.threads == 384
    assert CuTeDSL._get_dsl().envar._arch is None
    monkeypatch.setattr(operators, "get_operators", lambda *given: 2 * renamed(*given))
    with pytest.raises(BuildError, match=r"has 2 operators for sm_90a that are Config\(.*\): another, another$"):
        SPACE.build(task(), HOPPER, tmp_path)


def test_a_kernel_beyond_a_blocks_shared_memory_is_refused_and_leaves_nothing(tmp_path):
    small = replace(catalogue.device("H200"), shared_memory_per_block_bytes=200_000)
    with pytest.raises(BuildError, match=r"^the binary needs \d+ B of shared memory > 200000 B per block$"):
        SPACE.build(replace(task(), device=small), HOPPER_64, tmp_path)
    assert not any(tmp_path.iterdir())


def test_the_reason_is_one_line_of_the_compilers_message(monkeypatch, tmp_path):
    def broken(*given, **options):
        raise RuntimeError("\x1b[91merror\x1b[0m: no such tile\n\n  at line 7\nhint: another tile")

    monkeypatch.setattr("cutlass.operators.base.Operator.compile", broken)
    with pytest.raises(BuildError, match=r"^RuntimeError: error: no such tile … hint: another tile$"):
        SPACE.build(task(), HOPPER, tmp_path)
    assert not any(tmp_path.iterdir())


def test_the_device_record_answers_for_the_driver_and_no_engine_is_made():
    import cutlass.utils
    from cutlass.cutlass_dsl import CuTeDSL

    runs_here = CuTeDSL._get_dsl()._runtime_can_run_compiled
    board = replace(catalogue.device("H200"), active_clusters=((1, 132), (4, 31)))
    with cute_target.driver_of(board):
        hardware = cutlass.utils.HardwareInfo()
        assert [hardware.get_max_active_clusters(size) for size in (1, 2, 4)] == [132, 66, 31]
        assert hardware.get_device_multiprocessor_count() == 132
        assert hardware.get_l2_cache_size_in_bytes() == 62_914_560
        assert not CuTeDSL._get_dsl()._runtime_can_run_compiled(board.arch, board.arch)
    assert runs_here(board.arch, board.arch)
    assert cutlass.utils.HardwareInfo is not type(hardware)


def test_operands_take_no_memory():
    args = cute_build.arguments(Problem.parse("1000000x1000000x1000000:bf16:nt"))
    assert (args.problem_size.M, args.B.tensor.stride) == (1_000_000, (1, 1_000_000))


@pytest.mark.parametrize("data", [b"", b"\x7fELF" + bytes(80), bytes(1000)])
def test_bytes_without_a_cubin_are_refused(data):
    with pytest.raises(BuildError, match="no cubin"):
        kernel_of(data)
