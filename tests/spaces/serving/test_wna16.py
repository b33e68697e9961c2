"""Operands, bounds and launches of the engines' kernel for GPTQ and AWQ models; they need neither engine."""

from __future__ import annotations

from typing import Any

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import parse_workload
from gemmtune.spaces.triton_source.launches import Pointer

TILE = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}
SIZES = "m64:e8:k2:h4096:n1792:g128"


def task(kind="vllm_moe_wna16", dtype="int4_w4a16", sku="H100", sizes=SIZES):
    return Task(parse_workload(f"{kind}:{sizes}:{dtype}"), catalogue.device(sku), kind)


@pytest.mark.parametrize("dtype", ["int4_w4a16", "int4_w4a16:zeros", "int8_w8a16", "int8_w8a16:zeros"])
def test_the_expected_results_are_those_of_weights_unpacked_element_by_element(dtype):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from gemmtune.engine.measure.operands.operands import make_operands

    work: Any = task(dtype=dtype, sizes="m5:e4:k2:h64:n32:g32").problem
    operands: Any = make_operands(work, torch.device("cpu"))
    bits = 4 if "int4" in dtype else 8
    found = registry.workload(work.kind).expected(work, operands)
    assert [len(operands.arguments), len(operands.zeros)] == ([15, 2] if "zeros" in dtype else [13, 0])
    for i, (n, k) in enumerate(work.products):
        assert operands.b[i].shape == (4, n, k * bits // 8)
        assert operands.b_scale[i].shape == (4, n, k // 32)
        rows, inner = torch.arange(n)[:, None], torch.arange(k)[None]
        weight = (operands.b[i][:, rows, inner * bits // 8] >> (inner * bits % 8)) & (2**bits - 1)
        zero: Any = torch.full((4, n, k), 2 ** (bits - 1))
        if operands.zeros:
            packed = operands.zeros[i][:, rows * bits // 8, inner // 32]
            zero = (packed >> (rows * bits % 8)) & (2**bits - 1)
        right = (weight.double() - zero.double()) * operands.b_scale[i][:, rows, inner // 32].double()
        a = operands.a[i].double() if i else operands.a[i].double().repeat_interleave(2, 0)
        out = torch.einsum("rk,rnk->rn", a, right[operands.experts.flatten().long()])
        out *= operands.weights.flatten()[:, None] if i else 1
        torch.testing.assert_close(found[i].values.view(10, -1), out.float(), rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    ("dtype", "sku", "changes", "needed"),
    [
        ("int4_w4a16", "H100", {}, 49_152),
        ("int8_w8a16", "H100", {}, 73_728),
        ("int4_w4a16", "A100", {}, 40_960),
        ("int4_w4a16", "H100", {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_K": 256, "num_stages": 5}, 98_304),
        ("int8_w8a16:zeros", "H100", {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_K": 256, "num_stages": 5}, 229_376),
    ],
)
def test_shared_memory_is_what_triton_says_of_the_built_kernel(dtype, sku, changes, needed):
    space: Any = registry.space("vllm_moe_wna16")
    assert space.shared_bytes(task(dtype=dtype, sku=sku), Config(TILE | changes), (2, 1)) == needed


@pytest.mark.parametrize(
    ("dtype", "changes", "rule"),
    [
        ("int4_w4a16", {}, ""),
        ("int4_w4a16", {"BLOCK_SIZE_K": 32}, ""),
        ("int4_w4a16", {"BLOCK_SIZE_K": 512}, "BLOCK_SIZE_K cuts k"),  # 1792 is no multiple
        ("int4_w4a16", {"BLOCK_SIZE_M": 128}, "BLOCK_SIZE_M beyond the rows"),
        ("int4_w4a16", {"BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 256, "num_warps": 8, "num_stages": 3}, ""),  # 229,376 B
        ("int8_w8a16", {"BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 256, "num_warps": 8, "num_stages": 3}, "shared memory"),
    ],
)
def test_a_tile_divides_both_depths_and_fits(dtype, changes, rule):
    assert registry.space("vllm_moe_wna16").check(task(dtype=dtype), Config(TILE | changes)).rule == rule


@pytest.mark.parametrize("kind", ["vllm_moe_wna16", "sglang_moe_wna16"])
def test_both_products_are_launched_as_the_engine_launches_them(kind):
    space: Any = registry.space(kind)
    first, second = space.launches(task(kind, "int4_w4a16:zeros"), Config(TILE))
    assert first.function == second.function == "fused_moe_kernel_gptq_awq"
    assert (first.constants["N"], first.constants["K"], first.constants["top_k"]) == (3584, 4096, 2)
    assert (second.constants["N"], second.constants["K"], second.constants["top_k"]) == (4096, 1792, 1)
    assert (first.constants["use_int4_w4a16"], first.constants["has_zp"], first.constants["group_size"]) == (1, 1, 128)
    strides = {name: value for name, value in second.arguments.items() if name.startswith("stride_b")}
    assert list(strides.values()) == [4096 * 896, 1, 896, 4096 * 14, 1, 14, 2048 * 14, 1, 14]
    assert second.arguments["b_zp_ptr"] == Pointer("u8", (14,))
    assert (first.arguments["topk_weights_ptr"] is None) == (kind == "vllm_moe_wna16")
    padded = task(kind).problem.sorted_rows(64)
    assert first.grid == (-(-padded // 64) * 28, 1, 1)
    if kind == "vllm_moe_wna16":
        assert second.constants["block_k_diviable"] is True
    else:  # 64 divides the 2048 bytes of a first row, and the 896 of a second one
        assert (first.constants["even_Ks"], second.constants["even_Ks"]) == (True, True)
        deep = space.launches(task(kind), Config(TILE | {"BLOCK_SIZE_K": 256}))
        assert (deep[0].constants["even_Ks"], deep[1].constants["even_Ks"]) == (True, False)


def test_one_token_runs_another_tile_per_product_where_vllm_fills_it_in():
    config = Config({name: value for name, value in TILE.items() if name not in ("BLOCK_SIZE_N", "BLOCK_SIZE_K")})
    space: Any = registry.space("vllm_moe_wna16_shipped")
    launches = space.launches(task(sizes=SIZES.replace("m64", "m1")), config)
    tiles = [(each.constants["BLOCK_SIZE_N"], each.constants["BLOCK_SIZE_K"]) for each in launches]
    assert tiles == [(32, 64), (64, 32)]


def test_other_types_hash_the_functions_that_they_always_hashed():
    spaces: list[Any] = [registry.space(name) for name in ("vllm_moe", "sglang_moe", "vllm_moe_wna16")]
    helper = "write_zeros_to_output"
    assert {space.functions for space in spaces[:2]} == {(helper, "fused_moe_kernel")}
    assert spaces[2].functions == (helper, "fused_moe_kernel_gptq_awq")
