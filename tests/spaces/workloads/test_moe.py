from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmtune.engine.measure.operands.operands import make_operands  # noqa: E402 (it imports torch)
from gemmtune.engine.seams import registry  # noqa: E402
from gemmtune.spaces.workloads.moe import align  # noqa: E402

CPU = torch.device("cpu")


def layer(text):
    return registry.workload(text.partition(":")[0]).parse(text)


@pytest.mark.parametrize("kind", ["vllm_moe", "sglang_moe"])
@pytest.mark.parametrize(("sizes", "block"), [("m7:e8:k2", 16), ("m64:e16:k4", 64), ("m300:e60:k6", 32)])
def test_sorted_rows_give_each_row_to_its_expert_once(kind, sizes, block):
    work = layer(f"{kind}:{sizes}:h32:n16:bf16")
    operands = make_operands(work, CPU)
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
    experts = make_operands(work, CPU).experts
    assert all(len(set(row)) == 4 for row in experts.tolist())
    counts = torch.bincount(experts.flatten(), minlength=16)
    assert counts[0] > 2 * counts[8]
    assert not torch.equal(experts, make_operands(work, CPU, 1).experts)
    assert torch.equal(experts, make_operands(work, CPU).experts)


@pytest.mark.parametrize("dtype", ["bf16", "fp8_tensor", "fp8_block"])
def test_the_expected_results_are_those_of_an_einsum(dtype):
    work = layer(f"vllm_moe:m9:e4:k2:h128:n128:{dtype}")
    operands = make_operands(work, CPU)
    found = registry.workload("vllm_moe").expected(work, operands)
    for i, expected in enumerate(found):
        a, b = operands.a[i].double(), operands.b[i].double()
        if dtype == "fp8_tensor":
            a, b = a * operands.a_scale[i].double(), b * operands.b_scale[i].double()[:, None, None]
        elif dtype == "fp8_block":
            a = a * operands.a_scale[i].double().repeat_interleave(128, 1)
            b = b * operands.b_scale[i].double().repeat_interleave(128, 1).repeat_interleave(128, 2)
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
