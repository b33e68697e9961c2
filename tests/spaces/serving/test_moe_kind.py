from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmtune.engine.measure.operands.operands import make_operands  # noqa: E402 (it imports torch)
from gemmtune.engine.seams import registry  # noqa: E402
from gemmtune.spaces.serving.moe_kind import align  # noqa: E402

CPU = torch.device("cpu")


def layer(text):
    return registry.workload(text.partition(":")[0]).parse(text)


@pytest.mark.parametrize("kind", ["vllm_moe", "sglang_moe"])
@pytest.mark.parametrize(("sizes", "block"), [("m7:e8:k2", 16), ("m64:e16:k4", 64), ("m300:e60:k6", 32)])
def test_sorted_rows_give_each_row_to_its_expert_once(kind, sizes, block):
    work = layer(f"{kind}:{sizes}:h32:n16:bf16")
    operands: Any = make_operands(work, CPU)
    rows, of_blocks, padded = align(work, operands.experts, block)
    assert rows.numel() == work.sorted_rows(block)
    assert int(padded) % block == 0
    seen = []
    for place in range(0, int(padded), block):
        real = [row for row in rows[place : place + block].tolist() if row < work.rows]
        assert {int(operands.experts.flatten()[row]) for row in real} <= {int(of_blocks[place // block])}
        seen += real
    assert sorted(seen) == list(range(work.rows))
    assert all(row == work.rows for row in rows[int(padded) :].tolist())


def test_each_token_takes_different_experts_and_skew_shows():
    work = layer("vllm_moe:m400:e16:k4:h32:n16:bf16:zipf=1.5")
    drawn: list[Any] = [make_operands(work, CPU, number) for number in (0, 1, 0)]
    experts = drawn[0].experts
    assert all(len(set(row)) == 4 for row in experts.tolist())
    counts = torch.bincount(experts.flatten(), minlength=16)
    assert counts[0] > 2 * counts[8]
    assert not torch.equal(experts, drawn[1].experts)
    assert torch.equal(experts, drawn[2].experts)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp8_tensor", "fp8_block", "fp8_block:block=32x64", "int8_w8a16"])
def test_the_expected_results_are_those_of_an_einsum(dtype):
    work = layer(f"vllm_moe:m9:e4:k2:h128:n128:{dtype}")
    operands: Any = make_operands(work, CPU)
    found = registry.workload("vllm_moe").expected(work, operands)
    for i, expected in enumerate(found):
        a, b = operands.a[i].double(), operands.b[i].double()
        if dtype == "fp8_tensor":
            a, b = a * operands.a_scale[i].double(), b * operands.b_scale[i].double()[:, None, None]
        elif dtype == "int8_w8a16":
            b = b * operands.b_scale[i].double()[:, :, None]
        elif work.scale_block:
            of_rows, of_columns = work.scale_block
            a = a * operands.a_scale[i].double().repeat_interleave(of_columns, 1)
            b = b * operands.b_scale[i].double().repeat_interleave(of_rows, 1).repeat_interleave(of_columns, 2)
        rows = a if i else a.repeat_interleave(2, 0)
        right = torch.einsum("rk,rnk->rn", rows, b[operands.experts.flatten().long()])
        if i:
            right *= operands.weights.flatten()[:, None]
        torch.testing.assert_close(expected.values.view(18, -1), right.float(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("dtype", "sizes", "tolerances"),
    [
        ("bf16", "h256:n128", (8e-3, 8e-3)),
        ("fp8_tensor", "h256:n128", (8e-3, 8e-3)),
        ("fp8_block", "h8192:n128", (1.5e-4 * 8192**0.5, 8e-3)),  # the accumulator's own error, over the root of k
        ("bf16", "h8192:n128", (8e-3, 8e-3)),
    ],
)
def test_results_may_be_as_wrong_as_their_rounding(dtype, sizes, tolerances):
    work = layer(f"vllm_moe:m1:e1:k1:{sizes}:{dtype}")
    found = registry.workload("vllm_moe").expected(work, make_operands(work, CPU))
    assert [each.tolerance for each in found] == pytest.approx(tolerances)


def test_the_gemm_timed_beside_moves_about_the_bytes_that_the_layer_moves():
    work = layer("vllm_moe:m16:e64:k8:h2048:n768:bf16")
    beside = registry.workload("vllm_moe").timed_beside(work)
    assert beside.min_bytes <= work.bytes_with(work.experts)
    assert beside.n == beside.k <= 8192


@pytest.mark.parametrize(
    ("sizes", "m", "side"),
    [
        ("m1:e8:k2:h16:n16", 16, 512),
        ("m1:e8:k2:h128:n1792", 16, 1024),
        ("m1:e8:k2:h4096:n1792", 16, 6656),
        ("m64:e8:k2:h4096:n1792", 48, 8192),
        ("m4096:e8:k2:h128:n1792", 112, 7168),
        ("m65536:e8:k2:h4096:n1792", 8192, 8192),
    ],
)
def test_a_gemm_of_about_the_layers_bytes_and_arithmetic_is_timed_beside_it(sizes, m, side):
    work = layer(f"vllm_moe:{sizes}:bf16")
    beside = registry.workload("vllm_moe").timed_beside(work)
    assert (beside.m, beside.n, beside.k, beside.weight) == (m, side, side, work.weight)


@pytest.mark.parametrize(
    ("dtype", "of_rows", "of_weights", "element"),
    [
        ("bf16", None, None, {torch.bfloat16}),
        ("fp16", None, None, {torch.float16}),
        ("int8_w8a16", None, [(4, 256), (4, 256)], {torch.bfloat16, torch.int8}),
        ("fp8_tensor", [(1,), (1,)], [(4,), (4,)], {torch.float8_e4m3fn}),
        ("fp8_block", [(9, 2), (18, 1)], [(4, 2, 2), (4, 2, 1)], {torch.float8_e4m3fn}),
        ("fp8_block:block=64x32", [(9, 8), (18, 4)], [(4, 4, 8), (4, 4, 4)], {torch.float8_e4m3fn}),
    ],
)
def test_scales_are_near_one_with_the_shape_of_their_blocks(dtype, of_rows, of_weights, element):
    work = layer(f"vllm_moe:m9:e4:k2:h256:n128:{dtype}")
    operands: Any = make_operands(work, CPU)
    assert {each.dtype for each in (*operands.a, *operands.b)} == element
    assert {each.dtype for each in operands.c} == {torch.float16 if dtype == "fp16" else torch.bfloat16}
    assert [tuple(each.shape) for each in operands.a] == [(9, 256), (18, 128)]
    assert [tuple(each.shape) for each in operands.c] == [(9, 2, n) for n, _ in work.products]
    for scales, shapes in ((operands.a_scale, of_rows), (operands.b_scale, of_weights)):
        if shapes is None:
            assert scales == (None, None)
            continue
        assert [tuple(each.shape) for each in scales] == shapes
        assert all(0.75 <= float(each.min()) <= float(each.max()) < 2.5 for each in scales)
    assert len(operands.arguments) == 13
    assert operands.arguments[2] is operands.outputs[0]
    assert operands.arguments[10:] == (operands.weights, operands.experts, operands.aligned)
    assert torch.allclose(operands.weights.sum(dim=1), torch.ones(9))


def test_few_tokens_are_not_sorted_and_their_rows_are_padded_to_blocks():
    work = layer("vllm_moe:m1:e64:k2:h32:n16:bf16")
    operands: Any = make_operands(work, CPU)
    rows, of_blocks, padded = align(work, operands.experts, 16)
    if work.takes_rows_unsorted:
        assert (rows.numel(), of_blocks.numel(), padded.tolist()) == (0, 0, [work.rows * 16])
    else:
        assert padded.tolist() == [32]
