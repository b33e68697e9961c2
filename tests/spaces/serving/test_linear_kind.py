from __future__ import annotations

from typing import Any

import pytest

from gemmtune.engine.records.errors import ProblemError
from gemmtune.engine.seams.kinds import parse_workload

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmtune.engine.measure.operands.operands import make_operands  # noqa: E402 (it imports torch)
from gemmtune.engine.seams import registry  # noqa: E402


@pytest.mark.parametrize("kind", ["vllm_block_fp8", "sglang_block_fp8"])
def test_a_layer_reads_back_and_its_expected_result_is_the_scaled_product(kind):
    layer: Any = parse_workload(f"{kind}:m5:n192:k256")
    assert parse_workload(layer.name) == layer
    assert type(layer).from_fields(layer.to_fields()) == layer
    assert layer.resized(64).series == layer.series
    operands: Any = make_operands(layer, torch.device("cpu"))
    a = operands.a.double() * operands.a_scale.double().repeat_interleave(128, 1)
    scale = operands.b_scale.double().repeat_interleave(128, 0)[:192].repeat_interleave(128, 1)
    right = a @ (operands.b.double() * scale).T
    (expected,) = registry.workload(kind).expected(layer, operands)
    torch.testing.assert_close(expected.values, right.float())


@pytest.mark.parametrize(
    ("k", "tolerance"), [(128, 8e-3), (4096, 1.5e-4 * 64), (2816, 8e-3), (2944, 1.5e-4 * 2944**0.5)]
)
def test_a_result_may_be_as_wrong_as_its_rounding_or_its_accumulator(k, tolerance):
    layer = parse_workload(f"vllm_block_fp8:m1:n1:k{k}")
    [expected] = registry.workload("vllm_block_fp8").expected(layer, make_operands(layer, torch.device("cpu")))
    assert expected.tolerance == pytest.approx(tolerance)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("m5:n192", "k is missing"),
        ("m5:n192:k200", "k=200 is no multiple of 128"),
        ("m5:n1:x3:k128", "'x3' is no size"),
    ],
)
def test_a_malformed_layer_is_refused(text, said):
    with pytest.raises(ProblemError, match=said):
        parse_workload(f"vllm_block_fp8:{text}")
