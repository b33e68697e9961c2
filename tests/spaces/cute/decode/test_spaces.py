"""cute_gemv and cute_splitk: their problems, their constraints, and their binaries for two generations of GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import BuildError
from gemmtune.spaces.cute.decode.space import DecodeSpace

pytestmark = pytest.mark.slow(20)

GEMV = {
    "outputs_per_warp": 2,
    "warps_n": 1,
    "warps_k": 4,
    "split_k": 2,
    "k_unroll": 1,
    "num_stages": 4,
    "use_pdl": False,
}
SPLIT_K = {
    "warp_n": 16,
    "warps_n": 1,
    "warps_k": 4,
    "split_k": 4,
    "k_unroll": 2,
    "num_stages": 4,
    "share_a": False,
    "use_pdl": False,
}
CONFIGS = {"cute_gemv": GEMV, "cute_splitk": SPLIT_K}


def verdict(name, problem, sku="H200", **changes):
    task = Task(Problem.parse(problem), catalogue.device(sku), name)
    return registry.space(name).check(task, Config(CONFIGS[name] | changes))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    ("problem", "rule", "reason"),
    [
        ("4x512x8192:bf16:nt:epilogue=relu+x", "outputs", "one output, not 2: relu+x"),
        ("4x512x8192:bf16:nt:epilogue=where(matrix[bool],x,0)", "condition", "no operand of type bool: matrix"),
        ("2x4x512x8192:bf16:nt:bmm", "operation", "not bmm"),
        ("65x512x8192:bf16:nt", "rows", "m 65 > "),
        ("4x512x8192:fp32:nt", "types", "not fp32 and fp32"),
        ("4x512x8192:bf16:nt:out_dtype=fp16", "types", "to fp16"),
        ("4x512x8192:bf16:nn", "layout", "layout nt, not nn"),
        ("4x512x8188:bf16:nt", "alignment", "rows of A of 16376 B are no multiple of the 16 B"),
        ("4x512x8200:e4m3:nt", "alignment", "rows of A of 8200 B are no multiple of the 16 B"),
        ("4x512x8192:e4m3:nn", "layout", "layout nt, not nn"),
        ("4x512x8192:bf16:nt:b_dtype=e4m3", "types", "not bf16 and e4m3"),
        ("4x512x8192:e4m3:nt:acc_dtype=fp16", "types", "accumulated in fp16"),
        ("4x512x8192:int8:nt:out_dtype=bf16", "types", "not int8 and int8"),
    ],
)
def test_a_problem_that_no_decode_kernel_computes_is_rejected_with_the_reason(name, problem, rule, reason):
    found = verdict(name, problem)
    assert found.rule == rule
    assert reason in found.reason


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    "problem",
    [
        "1x1x8192:bf16:nt",
        "16x1001x8192:fp16:nt:addmm:bias=matrix",
        "3x7x8192:bf16:nt:out_dtype=fp32:dynamic_m=true",
        "16x512x8192:bf16:nt:epilogue=mul(matrix.silu)",
        "4x512x8192:bf16:nt:addmm:epilogue=gelu.to(fp32)",
        "5x33x8208:e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32]).add(row2)",
        "1x16x8192:e5m2:nt:b_dtype=e4m3:out_dtype=fp16:epilogue=mul(scalar[fp32]).mul(scalar2[fp32])",
    ],
)
def test_ragged_sizes_biases_epilogues_and_a_dynamic_m_are_served(name, problem):
    assert verdict(name, problem)
    assert verdict(name, problem, "B200")
    assert verdict(name, problem, "A100-80GB").rule == "architecture"


@pytest.mark.parametrize(
    ("name", "problem", "changes", "rule", "reason"),
    [
        ("cute_gemv", "17x512x8192", {}, "rows", "m 17 > 16"),
        ("cute_gemv", "4x512x8192", {"warps_n": 8, "warps_k": 8}, "threads", "2048 threads > 512"),
        ("cute_gemv", "16x512x8192", {"outputs_per_warp": 8}, "registers", "128 accumulators per lane > 64"),
        ("cute_gemv", "16x512x8192", {"k_unroll": 4, "num_stages": 8}, "shared memory", "> 232448 B per block"),
        ("cute_gemv", "1x512x1024", {}, "idle warps", "k has 4 chunks of 256, for 8 warps"),
        ("cute_splitk", "32x512x8192", {"share_a": True}, "shared A", "1 warps along n cannot share the 4 loads"),
        (
            "cute_splitk",
            "8x512x8192",
            {"share_a": True, "warps_n": 2},
            "shared A",
            "2 warps along n cannot",
        ),
        ("cute_splitk", "64x512x8192", {"warp_n": 64}, "registers", "128 accumulators per lane > 64"),
        ("cute_splitk", "8x512x512", {}, "idle warps", "k has 8 chunks of 64, for 16 warps"),
    ],
)
def test_a_tiling_that_does_not_fit_is_rejected_with_the_constraint(name, problem, changes, rule, reason):
    found = verdict(name, problem, **changes)
    assert found.rule == rule
    assert reason in found.reason


def test_a_binary_is_shared_by_all_sizes_of_n_and_k_and_by_no_other_bias_epilogue_or_type():
    space = registry.space("cute_splitk")
    names = ["5x512x8192", "8x4096x4096", "9x512x8192", "5x512x8192:bf16:nt:addmm", "5x512x8192:fp16"]
    names.append("5x512x8192:bf16:nt:epilogue=relu")
    tasks = [Task(Problem.parse(name), catalogue.device("H200"), "cute_splitk") for name in names]
    keys = [space.artifact_key(task, Config(SPLIT_K)) for task in tasks]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 5


@pytest.mark.parametrize(
    ("name", "sku", "changes"),
    [
        ("cute_gemv", "H200", {}),
        ("cute_splitk", "H200", {"share_a": True, "warps_n": 2, "warps_k": 2}),
        ("cute_gemv", "B200", {"use_pdl": True}),
        ("cute_splitk", "B200", {"use_pdl": True}),
    ],
)
def test_a_kernel_builds_on_a_cpu_without_the_driver_and_with_the_shared_memory_of_its_tiling(
    name, sku, changes, tmp_path, monkeypatch
):
    pytest.importorskip("cutlass", reason="nvidia-cutlass-dsl is not installed")
    from cutlass.base_dsl.runtime import cuda

    asked = []
    monkeypatch.setattr(cuda.cuda, "cuInit", asked.append)
    m = 32 if "share_a" in changes else 3
    space, task = registry.space(name), Task(Problem.parse(f"{m}x512x8192:bf16:nt:addmm"), catalogue.device(sku), name)
    config = Config(CONFIGS[name] | changes)
    artifact = space.build(task, config, tmp_path)
    assert asked == []
    assert isinstance(space, DecodeSpace)
    tiling = space.tiling(task.problem, config)
    assert artifact.resources.shared_bytes == tiling.shared_bytes
    assert artifact.resources.threads == tiling.threads
    assert artifact.resources.spill_bytes == 0
    assert ("gemmtune-decode-kernels", "4") in artifact.toolchain.versions


EPILOGUE_OF_ALL_OPERANDS = (
    "addmm:epilogue=add(matrix[fp32,t]).mul(matrix2.silu).add(row.mul(column)).mul(scalar).gelu.maximum(0.5).to(fp32)"
)
EPILOGUE_OF_ALL_OPERATIONS = (
    "epilogue=abs.add(1).sqrt.log.exp2.sin.cos.tanh.floor.neg.exp.rsqrt.log1p.log2.reciprocal.erf.sigmoid"
    ".pow(2).div(3).minimum(matrix).sub(row)"
)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    "epilogue",
    [EPILOGUE_OF_ALL_OPERANDS, EPILOGUE_OF_ALL_OPERATIONS, "epilogue=where(x.gt(0),x,matrix)"],
)
def test_a_kernel_with_an_epilogue_builds_and_takes_its_operands_by_name(name, epilogue, tmp_path):
    pytest.importorskip("cutlass", reason="nvidia-cutlass-dsl is not installed")
    problem = Problem.parse(f"3x512x8192:bf16:nt:{epilogue}")
    space, task = registry.space(name), Task(problem, catalogue.device("H200"), name)
    artifact = space.build(task, Config(CONFIGS[name]), tmp_path)
    assert artifact.resources.spill_bytes == (32 if "sin" in epilogue else 0)  # sin and cos of large values need memory
    call: Any = space.deployed_call(artifact, task)
    *_, (_, *operands), _ = call
    assert tuple(operands) == problem.argument_names[-len(operands) :]


@pytest.mark.parametrize(
    ("name", "problem", "changes"),
    [
        ("cute_gemv", "3x7x8192:e5m2:nt:epilogue=mul(scalar[fp32]).mul(scalar2[fp32])", {}),
        ("cute_splitk", "16x512x8192:e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32]).add(row2)", {"k_unroll": 1}),
    ],
)
def test_a_kernel_with_scales_of_8_bit_operands_builds_without_spills(name, problem, changes, tmp_path):
    pytest.importorskip("cutlass", reason="nvidia-cutlass-dsl is not installed")
    of = Problem.parse(problem)
    space, task, config = (
        registry.space(name),
        Task(of, catalogue.device("H100"), name),
        Config(CONFIGS[name] | changes),
    )
    artifact = space.build(task, config, tmp_path)
    assert isinstance(space, DecodeSpace)
    assert artifact.resources.shared_bytes == space.tiling(of, config).shared_bytes
    assert artifact.resources.spill_bytes == 0
    operands = [operand.name for operand in of.epilogue.operands]
    assert space.deployed_call(artifact, task) == ["a", "b.mT", "out", ["bias", *operands], "stream"]


def test_a_load_of_8_bits_has_twice_the_elements_and_the_same_bytes():
    space = registry.space("cute_splitk")
    assert isinstance(space, DecodeSpace)
    of_16, of_8 = (space.tiling(Problem.parse(f"16x512x8192:{dtype}"), Config(SPLIT_K)) for dtype in ("bf16", "e4m3"))
    assert (of_16.elements, of_16.steps, of_8.elements, of_8.steps) == (8, 1, 16, 2)
    assert of_16.shared_bytes == of_8.shared_bytes
    keys = {
        space.artifact_key(Task(Problem.parse(f"5x512x8192:{types}"), catalogue.device("H200"), "x"), Config(SPLIT_K))
        for types in ("e4m3:nt", "e5m2:nt", "e4m3:nt:b_dtype=e5m2", "e5m2:nt:b_dtype=e4m3")
    }
    assert len(keys) == 4


def test_a_kernel_takes_a_matrix_of_biases_in_the_type_of_the_product_not_of_what_is_stored(tmp_path):
    pytest.importorskip("cutlass", reason="nvidia-cutlass-dsl is not installed")
    from gemmtune.engine.toolchain.launching.cute_object import load

    problem = Problem.parse("3x7x8192:bf16:nt:addmm:bias=matrix:epilogue=to(fp32)")
    task = Task(problem, catalogue.device("H200"), "cute_gemv")
    function = load(Path(registry.space("cute_gemv").build(task, Config(GEMV), tmp_path).path).read_bytes)
    with pytest.raises(TypeError, match=r"\[n0, n2\], float32\), .*: Tuple\[Tensor\(\[n0, n2\], bfloat16\)\]"):
        function()  # the complaint names the parameters: of n0 rows and n2 columns, the output and the bias


def test_a_config_beyond_the_hardware_fails_to_build_with_its_reason(tmp_path):
    pytest.importorskip("cutlass", reason="nvidia-cutlass-dsl is not installed")
    task = Task(Problem.parse("3x512x8192"), catalogue.device("H200"), "cute_gemv")
    with pytest.raises(BuildError, match="shared memory"):
        registry.space("cute_gemv").build(task, Config(GEMV | {"k_unroll": 4, "num_stages": 16}), tmp_path)


def test_the_kernels_that_are_to_fail_on_a_gpu_are_built(tmp_path, monkeypatch):
    pytest.importorskip("cutlass", reason="nvidia-cutlass-dsl is not installed")
    monkeypatch.syspath_prepend(Path(__file__).parent)
    from faulty_cute import FAULTS, FaultyCuteSpace

    task = Task(Problem.parse("3x96x4096"), catalogue.device("H200"), "faulty_cute")
    built = {fault: FaultyCuteSpace().build(task, Config({"fault": fault}), tmp_path).digest for fault in FAULTS}
    assert len({*built.values()}) == len(FAULTS) - 1  # two have no fault
