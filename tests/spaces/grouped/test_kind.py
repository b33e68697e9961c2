"""Operands of grouped products and their right results, against torch's own grouped product on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmtune.engine.measure.operands.operands import make_operands  # noqa: E402 (it imports torch)
from gemmtune.engine.measure.operands.reference import ReferenceResult  # noqa: E402
from gemmtune.engine.records.grouped.product import Grouped  # noqa: E402
from gemmtune.engine.seams import registry  # noqa: E402

CPU = torch.device("cpu")
KIND = registry.workload("grouped")
SCALED = "grouped:rows:m64:g4:n32:k48:e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32])"
NAMES = (
    "grouped:rows:m64:g4:n32:k48:bf16:nt",
    "grouped:rows:m64:g4:n32:k48:bf16:nn:routing=counts(10.0.50.4)",
    "grouped:rows:m64:g4:n32:k48:bf16:nt:routing=counts(0.0.1.0)",
    "grouped:inner:m32:g4:n48:k64:bf16:tn:routing=zipf",
    "grouped:inner:m32:g4:n48:k64:bf16:tn:routing=counts(0.64.0.0)",
    "grouped:inner:m32:g40:n48:k4096:bf16:tn:routing=counts(4057" + ".1" * 39 + ")",
    "grouped:batched:m7:g3:n16:k32:bf16:nt",
)


def of(name):
    product = Grouped.parse(name)
    operands: Any = make_operands(product, CPU)
    return product, operands


@pytest.mark.parametrize("name", NAMES)
def test_torchs_own_product_is_right(name):
    product, operands = of(name)
    found = torch._grouped_mm(operands.a, operands.b, offs=operands.offs)
    assert found.shape == operands.out.shape
    assert ReferenceResult(product, operands).check(found).reason == ""


@pytest.mark.parametrize("name", NAMES[:5])
def test_a_product_with_another_routing_is_wrong(name):
    product, operands = of(name)
    shifted = operands.offs.clone()
    shifted[:-1] = (shifted[:-1] + 3).clamp(max=product.size)
    found = torch._grouped_mm(operands.a, operands.b, offs=shifted)
    assert ReferenceResult(product, operands).check(found).reason


@pytest.mark.parametrize("routing", ["uniform", "counts(10.0.50.4)", "counts(0.0.1.0)"])
def test_a_product_of_quantised_values_with_its_scales_is_right_and_one_with_others_is_wrong(routing):
    product, operands = of(f"{SCALED}:routing={routing}")
    ends, (of_rows, of_columns) = operands.offs.tolist(), operands.scales
    parts = [(operands.a[first:last].float() @ b.float()) * of_rows[first:last, None] * scale
             for first, last, b, scale in zip([0, *ends[:-1]], ends, operands.b, of_columns, strict=True)]  # fmt: skip
    reference, right = ReferenceResult(product, operands), torch.cat(parts)
    assert 0.8 < float(right.square().mean().sqrt()) < 1.25
    assert reference.check(right.bfloat16()).reason == ""
    assert reference.check((right / of_rows[:, None] * of_rows.flip(0)[:, None]).bfloat16()).reason
    assert reference.check((right * 1.03).bfloat16()).reason
    assert {each.dtype for each in (operands.a, operands.b)} == {torch.float8_e4m3fn}
    assert len(operands.arguments) == len(product.argument_names)


def test_groups_without_rows_give_zeros_where_k_is_cut():
    product, operands = of("grouped:inner:m32:g4:n48:k64:bf16:tn:routing=counts(0.64.0.0)")
    (expected,) = KIND.expected(product, operands)
    assert [bool(each.any()) for each in expected.values] == [False, True, False, False]


def test_operands_lie_in_memory_as_the_layout_says():
    _, rows = of("grouped:rows:m64:g4:n32:k48:bf16:nt")
    assert (rows.a.stride(), rows.b.stride(), rows.out.stride()) == ((48, 1), (32 * 48, 1, 48), (32, 1))
    _, inner = of("grouped:inner:m32:g4:n48:k64:bf16:tn")
    assert (inner.a.stride(), inner.b.stride(), inner.out.stride()) == ((1, 32), (48, 1), (32 * 48, 48, 1))
    assert inner.offs.dtype is torch.int32
    assert int(inner.offs[-1]) == 64


def test_the_gemm_beside_is_as_large_as_the_product_and_no_larger_than_a_bound():
    small = KIND.timed_beside(Grouped.parse("grouped:rows:m64:g8:n1024:k1024:bf16:nt"))
    assert small.min_bytes == pytest.approx(8 * 1024 * 1024 * 2, rel=0.1)
    large = KIND.timed_beside(Grouped.parse("grouped:rows:m32768:g256:n7168:k2048:bf16:nt"))
    assert max(large.m, large.n, large.k) <= 8192
