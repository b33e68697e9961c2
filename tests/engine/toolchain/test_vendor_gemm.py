from __future__ import annotations

from typing import Any

import pytest

from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.toolchain import vendor_gemm as vendor
from gemmtune.spaces.gemm.kind import Gemm


@pytest.mark.parametrize(
    ("problem", "operator_name"),
    [
        ("1x1x1:bf16:tt", "aten::mm"),
        ("7x5x3:fp16:nn", "aten::mm"),
        ("7x5x3:fp16:nt:out_dtype=fp32", "aten::mm"),
        ("2x7x5x3:fp16:nt:bmm:out_dtype=fp32", "aten::bmm"),
        ("7x5x3:tf32:tn", "aten::mm"),
        ("7x5x3:bf16:nt:addmm", "aten::addmm"),
        ("7x5x3:tf32:tn:addmm:bias=matrix", "aten::addmm"),
        ("2x7x5x3:fp32:tt:bmm", "aten::bmm"),
        ("7x5x3:bf16:nt:dynamic_m=true", "aten::mm"),
        ("1x16x32:e4m3:nt", "aten::_scaled_mm"),
        ("33x48x80:e4m3:nt:b_dtype=e5m2:out_dtype=fp32", "aten::_scaled_mm"),
        ("33x48x80:e5m2:nt:b_dtype=e4m3", "aten::_scaled_mm"),
        ("17x8x24:int8:nt", "aten::_int_mm"),
    ],
)
def test_each_problem_has_the_operator_for_its_types(problem, operator_name):
    served = Problem.parse(problem)
    assert vendor.supports(served)
    assert vendor.operator_name(served) == operator_name
    assert Gemm().timed_beside(served) == served


@pytest.mark.parametrize(
    ("problem", "rule", "reason"),
    [
        ("32x32x32:e4m3:nt:addmm:bias=matrix", "operation", "aten runs mm of e4m3, not addmm"),
        ("4x32x32x32:int8:nt:bmm:dynamic_m=true", "operation", "aten runs mm of int8, not bmm"),
        ("8x8x8:bf16:nt:addmm:out_dtype=fp32", "types", "aten::addmm does not multiply bf16 by bf16 to fp32"),
        ("2x8x8x8:bf16:nt:baddbmm:out_dtype=fp32", "types", "aten::baddbmm does not multiply bf16 by bf16 to fp32"),
        ("8x8x8:bf16:nt:b_dtype=fp16", "types", "aten::mm does not multiply bf16 by fp16 to bf16"),
        ("8x8x8:fp32:nt:out_dtype=bf16", "types", "aten::mm does not multiply fp32 by fp32 to bf16"),
        ("32x32x32:e5m2:nt", "types", "aten::_scaled_mm does not multiply e5m2 by e5m2 to bf16"),
        ("32x32x32:int8:nt:out_dtype=fp32", "types", "aten::_int_mm does not multiply int8 by int8 to fp32"),
        ("32x32x32:e4m3:nn", "layout", "aten::_scaled_mm reads operands as nt, not nn"),
        ("32x32x32:int8:tt", "layout", "aten::_int_mm reads operands as nt, not tt"),
        ("32x24x32:e4m3:nt", "alignment", "aten::_scaled_mm wants n a multiple of 16, not 24"),
        ("32x32x20:int8:nt", "alignment", "aten::_int_mm wants k a multiple of 8, not 20"),
        (
            "16x32x32:e4m3:nt:out_dtype=fp16:epilogue=mul(column[fp32]).mul(row[fp32])",
            "types",
            "aten::_scaled_mm with a scale per row stores bf16, not fp16",
        ),
        ("16x32x32:int8:nt", "rows", "aten::_int_mm wants m of at least 17, not 16"),
    ],
)
def test_an_unsupported_problem_has_a_reason_and_a_bf16_reference_problem(problem, rule, reason):
    unserved = Problem.parse(problem)
    verdict = vendor.supports(unserved)
    assert (verdict.rule, verdict.reason) == (rule, reason)
    instead = Gemm().timed_beside(unserved)
    assert vendor.supports(instead)
    layout = f"{unserved.a_layout}{unserved.b_layout}"
    assert instead.name == f"{unserved.m}x{unserved.n}x{unserved.k}:bf16:{layout}"


@pytest.mark.parametrize(
    "problem",
    [
        "33x48x80:e4m3:nt",
        "33x48x80:e4m3:nt:b_dtype=e5m2:out_dtype=fp32",
        "17x8x24:int8:nt",
        "5x6x7:bf16:tn",
        "5x6x7:bf16:nt:addmm",
        "5x6x7:fp16:tt:addmm:bias=matrix",
        "3x5x6x7:fp32:tn:bmm",
        "1x5x6x7:bf16:nt:bmm",
    ],
)
def test_products_are_right(problem):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from gemmtune.engine.measure.operands.operands import make_operands
    from gemmtune.engine.measure.operands.reference import ReferenceResult, poison

    served = Problem.parse(problem)
    assert vendor.supports(served)
    operands: Any = make_operands(served, torch.device("cpu"))
    poison(operands.out)
    vendor.multiply(*operands.arguments)
    assert ReferenceResult(served, operands).check(operands.out).reason == ""


@pytest.mark.parametrize("how", ["", ":accumulation=exact"])
@pytest.mark.parametrize(
    "chain", ["mul(scalar[fp32]).mul(scalar2[fp32])", "mul(scalar[fp32]).mul(scalar2[fp32]).add(row)"]
)
def test_scales_and_bias_are_the_vendor_librarys_own(chain, how):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from gemmtune.engine.measure.operands.operands import make_operands
    from gemmtune.engine.measure.operands.reference import ReferenceResult, poison
    from gemmtune.spaces.aten import _VendorKernel

    served = Problem.parse(f"33x48x80:e4m3:nt:epilogue={chain}{how}")
    assert vendor.supports(served)
    assert not served.unscaled_epilogue
    operands: Any = make_operands(served, torch.device("cpu"))
    poison(operands.out)
    _VendorKernel(served)(*operands.arguments)
    reference = ReferenceResult(served, operands)
    assert reference.check(operands.out).reason == ""
    for place in range(len(operands.further)):  # the check finds a kernel that leaves one out
        others = [*operands.arguments[:3], *(each.clone() for each in operands.further)]
        others[3 + place] = torch.full_like(others[3 + place], 0 if place == 2 else 1)
        _VendorKernel(served)(*others)
        assert reference.check(operands.out).reason


def test_tf32_is_on_only_on_request():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    matmul, ones = torch.backends.cuda.matmul, torch.ones(2, 2)
    before = matmul.fp32_precision
    try:
        vendor.multiply(ones, ones, torch.empty(2, 2), allow_tf32=True)
        assert matmul.fp32_precision == "tf32"
        vendor.multiply(ones, ones, torch.empty(2, 2))
        assert matmul.fp32_precision == "ieee"
    finally:
        matmul.fp32_precision = before


@pytest.mark.parametrize(
    ("problem", "tf32"),
    [
        ("7x5x3:fp32:nn", False),
        ("7x5x3:fp32:nn", True),
        ("7x5x3:fp32:nn:addmm", False),
        ("2x7x5x3:fp32:nn:bmm", False),
        ("32x16x24:int8:nn", False),
    ],
)
def test_a_product_is_the_vendor_librarys(problem, tf32, monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    work = Problem.parse(problem)
    set_to = []
    kind = type("Matmul", (), {"__setattr__": lambda self, name, value: set_to.append((name, value))})
    monkeypatch.setattr(torch.backends.cuda, "matmul", kind())
    batch = (work.batch,) if work.batch > 1 else ()
    draw = torch.randn if work.a_dtype.itemsize > 1 else lambda *shape: torch.randint(-9, 9, shape, dtype=torch.int8)
    a, b = draw(*batch, work.m, work.k), draw(*batch, work.k, work.n)
    out = torch.empty(*batch, work.m, work.n, dtype=torch.int32 if a.dtype == torch.int8 else a.dtype)
    bias = torch.randn(work.n) if "addmm" in problem else None
    vendor.multiply(a, b, out, bias, allow_tf32=tf32)
    right = a.double() @ b.double() + (0 if bias is None else bias.double())
    torch.testing.assert_close(out.double(), right, rtol=1e-5, atol=1e-5)
    expected = [] if a.dtype == torch.int8 else [("fp32_precision", "tf32" if tf32 else "ieee")]
    assert set_to == expected


def test_a_product_of_8_bit_floats_is_accumulated_in_the_fastest_way_and_another_type_is_stored(monkeypatch):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    calls = []
    monkeypatch.setattr(torch, "_scaled_mm", lambda *given, **options: calls.append((given, options)))
    monkeypatch.setattr(torch, "mm", lambda *given, **options: calls.append((given, options)))
    a, b = torch.zeros(16, 32, dtype=torch.float8_e4m3fn), torch.zeros(32, 16, dtype=torch.float8_e4m3fn)
    out = torch.empty(16, 16, dtype=torch.bfloat16)
    vendor.multiply(a, b, out)
    [(given, options)] = calls
    assert [each.item() for each in given[2:]] == [1.0, 1.0]
    assert options == {"out_dtype": torch.bfloat16, "use_fast_accum": True, "bias": None, "out": out}
    scales = torch.ones(16, 1), torch.ones(1, 16)
    vendor.multiply(a, b, out, torch.ones(1, 16), scales=scales, fast=False)
    assert calls[-1][0][2:] == scales
    assert calls[-1][1]["use_fast_accum"] is False
    assert calls[-1][1]["bias"].shape == (16,)
    halves = torch.zeros(2, 2, dtype=torch.float16)
    wide = torch.zeros(2, 2)
    vendor.multiply(halves, halves, wide)
    assert calls[-1][1] == {"out_dtype": torch.float32, "out": wide}
