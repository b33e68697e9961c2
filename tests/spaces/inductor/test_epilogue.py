"""Products with an epilogue: the fused kernel, and the pointwise kernels behind the vendor library's product."""

from __future__ import annotations

import json

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

pytestmark = pytest.mark.slow(25)

TILE = {"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}


def behind_the_product(source):
    return source.split("# inductor generates a suffix")[1]


@pytest.mark.parametrize(
    ("epilogue", "code", "arguments"),
    [
        ("epilogue=relu", ".maximum(", {"a", "b", "out"}),
        ("epilogue=silu.mul(matrix)", "libdevice.exp(", {"a", "b", "matrix", "out"}),
        ("epilogue=mul(row).add(row2)", "+ (tl.broadcast_to(idx_n, ", {"a", "b", "row", "row2", "out"}),
        ("epilogue=mul(column[fp32])", "+ (tl.broadcast_to(idx_m, ", {"a", "b", "column", "out"}),
        ("epilogue=mul(gate[128]).add(matrix)", "idx_n + 320*(idx_m // 128)", {"a", "b", "gate", "matrix", "out"}),
        ("epilogue=mul(gate[100])", "idx_n + 320*(idx_m // 100)", {"a", "b", "gate", "out"}),
        ("epilogue=mul(matrix[t])", "idx_m + 512*idx_n", {"a", "b", "matrix", "out"}),
        ("addmm:bias=matrix:epilogue=gelu_tanh", "libdevice.tanh(", {"a", "b", "bias", "out"}),
    ],
)
def test_inductors_scheduler_fuses_the_epilogue_into_the_template(rendered, epilogue, code, arguments):
    source, rendering = rendered(f"512x320x128:bf16:nt:{epilogue}")
    assert code in behind_the_product(source)
    assert behind_the_product(source).count("tl.store(") == 1
    assert set(rendering.kernel.arguments.values()) == arguments
    assert rendering.grid == (8 * 10, 1, 1)


def test_several_outputs_are_stored_by_one_kernel(rendered):
    source, rendering = rendered("512x320x128:bf16:nt:epilogue=gelu+x")
    assert behind_the_product(source).count("tl.store(") == 2
    assert set(rendering.kernel.arguments.values()) == {"a", "b", "out", "out2"}


def test_a_dynamic_m_is_an_argument_of_the_fused_kernel(rendered):
    _, rendering = rendered("512x320x128:bf16:nt:epilogue=silu.mul(matrix):dynamic_m=true")
    assert set(rendering.kernel.arguments.values()) == {"a", "b", "m", "matrix", "out"}


def built(space, problem, config, folder):
    return registry.space(space).build(Task(Problem.parse(problem), catalogue.device("H200"), space), config, folder)


def test_registers_and_shared_memory_are_those_of_the_fused_build(tmp_path):
    tile = Config({**TILE, "BLOCK_M": 128, "BLOCK_N": 128, "num_warps": 8})
    plain = built("triton_mm", "512x512x512:bf16:nt", tile, tmp_path)
    fused = built("triton_mm", "512x512x512:bf16:nt:epilogue=gelu_tanh.mul(matrix).to(fp32)", tile, tmp_path)
    assert fused.digest != plain.digest
    assert dict(fused.launch)["arguments"] == "a b matrix out"
    assert fused.resources.registers > 0
    assert fused.resources != plain.resources


def test_the_baseline_has_the_block_sizes_among_which_inductor_chooses(tmp_path):
    artifact = built("aten", "64x512x512:bf16:nt:epilogue=silu.mul(matrix)", Config({}), tmp_path)
    (variants,) = json.loads(dict(artifact.launch)["kernels"])
    assert len(variants) > 1
    assert all(variant["arguments"] == ["product", "matrix", "out", "xnumel"] for variant in variants)
    assert all(variant["values"]["xnumel"] == 64 * 512 for variant in variants)
    assert sum(variant["bytes"] for variant in variants) == len((tmp_path / artifact.path).read_bytes())


def test_binaries_of_an_epilogue_belong_to_one_problem_and_the_vendor_librarys_to_many():
    space, device = registry.space("aten"), catalogue.device("H200")
    names = ("64x512x512:bf16:nt", "128x512x512:bf16:nt", "64x512x512:bf16:nt:epilogue=relu")
    keys = [space.artifact_key(Task(Problem.parse(name), device, "aten"), Config({})) for name in names]
    assert keys[0] == keys[1] == "aten::mm"
    assert keys[2].endswith(names[2] + "/" + Config({}).digest)
