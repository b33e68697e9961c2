from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from gemmtune.engine.records.epilogue.chain import NO_EPILOGUE
from gemmtune.engine.records.epilogue.text import parse_epilogue
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.spaces.gemm.kind import Gemm

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch.nn import functional as F  # noqa: E402, N812

from gemmtune.engine.measure.operands.operands import make_operands  # noqa: E402 (it imports torch)
from gemmtune.engine.measure.operands.reference import ReferenceResult, poison  # noqa: E402 (as above)
from gemmtune.engine.records.epilogue.chain import computed_by_torch  # noqa: E402 (as above)

pytestmark = pytest.mark.slow(15)

CPU = torch.device("cpu")
ACTIVATIONS = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": torch.relu,
    "mul(0.5).to(fp32)": lambda x: 0.5 * x,
    "sub(1,x)": lambda x: 1 - x,
    "pow(2).maximum(0.1)": lambda x: (x**2).clamp(min=0.1),
}
BACKWARD = {
    "silu_backward(matrix)": torch.ops.aten.silu_backward,
    "gelu_backward(matrix)": torch.ops.aten.gelu_backward,
    "gelu_tanh_backward(matrix)": lambda x, r: torch.ops.aten.gelu_backward(x, r, approximate="tanh"),
    "relu_backward(matrix)": lambda x, r: torch.ops.aten.threshold_backward(x, r, 0),
    "silu.mul(matrix)": lambda x, r: F.silu(x) * r,
    "matrix.gt(0).where(x,matrix)": lambda x, r: torch.where(r > 0, x, r),
}


@pytest.mark.parametrize("text", [*ACTIVATIONS, *BACKWARD])
def test_an_epilogue_is_computed_as_torch_does(text):
    x, r = torch.randn(7, 5, dtype=torch.float64), torch.randn(7, 5, dtype=torch.float64)
    further = (r,) if text in BACKWARD else ()
    (found,) = computed_by_torch(parse_epilogue(text), x, further)
    assert torch.allclose(found, (ACTIVATIONS | BACKWARD)[text](x, *further), rtol=1e-12)


@pytest.mark.parametrize("epilogue", [NO_EPILOGUE, parse_epilogue("gelu")])
def test_a_product_is_freed_with_its_last_name_though_the_garbage_collector_rests(epilogue):
    x = torch.randn(7, 5)
    seen = weakref.ref(x)
    gc.disable()
    try:
        computed_by_torch(epilogue, x, ())
        del x
        assert seen() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("problem", "shapes", "dtypes"),
    [
        ("6x5x7:bf16:nt:epilogue=mul(row).add(column[fp32])", [(1, 5), (6, 1)], ["bfloat16", "float32"]),
        ("3x6x5x7:fp16:nt:bmm:epilogue=mul(matrix).add(row)", [(3, 6, 5), (1, 1, 5)], ["float16"] * 2),
        ("3x6x5x7:fp16:nt:bmm:epilogue=add(rows)", [(3, 1, 5)], ["float16"]),
        ("6x5x7:bf16:nt:addmm:epilogue=matrix[bool].where(0,x)+x", [(6, 5)], ["bool"]),
        ("6x5x7:bf16:nt:epilogue=mul(matrix[t]).mul(scalar)", [(6, 5), (1, 1)], ["bfloat16"] * 2),
    ],
)
def test_an_epilogues_operands_are_broadcast_to_the_output_by_their_shapes(problem, shapes, dtypes):
    parsed = Problem.parse(problem)
    operands: Any = make_operands(parsed, CPU)
    assert [tuple(each.shape) for each in operands.further] == shapes
    assert [each.dtype for each in operands.further] == [getattr(torch, dtype) for dtype in dtypes]
    assert len(operands.arguments) == len(parsed.argument_names)
    assert len(operands.outputs) == len(parsed.stored_dtypes)
    if "[t]" in problem:
        assert operands.further[0].stride() == (1, 6)


@pytest.mark.parametrize(
    "problem",
    [
        "33x48x80:bf16:nt:epilogue=silu.mul(matrix)",
        "33x48x80:bf16:nt:addmm:bias=matrix:epilogue=relu.to(fp32)",
        "33x48x80:fp16:tn:epilogue=gelu+x",
        "3x33x48x80:bf16:nn:bmm:epilogue=mul(column.sqrt).add(row)",
    ],
)
def test_a_product_rounded_before_its_epilogue_is_right_and_one_without_it_is_wrong(problem):
    parsed = Problem.parse(problem)
    operands: Any = make_operands(parsed, CPU)
    product = operands.a.double() @ operands.b.double() + (0 if operands.bias is None else operands.bias.double())
    rounded = product.to(getattr(torch, parsed.out_dtype.torch_name)).double()
    reference = ReferenceResult(parsed, operands)
    for out, right in zip(operands.outputs, computed_by_torch(parsed.epilogue, rounded, operands.further), strict=True):
        poison(out)
        out.copy_(right)
    assert reference.check(*operands.outputs).reason == ""
    operands.outputs[0].copy_(product)
    assert "error norm" in reference.check(*operands.outputs).reason


def test_an_element_that_an_epilogue_makes_large_may_have_the_rounding_of_its_size():
    problem = Problem.parse("256x256x64:bf16:nt:epilogue=silu.mul(matrix)")
    operands: Any = make_operands(problem, CPU)
    product = operands.a.double() @ operands.b.double()
    rounded = product.bfloat16().double()
    silu = torch.nn.functional.silu
    worst = int((silu(product) - silu(rounded)).abs().argmax())
    operands.further[0].view(-1)[worst] = 64.0
    (right,) = computed_by_torch(problem.epilogue, rounded, operands.further)
    reference = ReferenceResult(problem, operands)
    operands.out.copy_(right)
    assert not reference.check(operands.out).reason
    operands.out.view(-1)[worst - 1] += 1
    assert "an element is off" in reference.check(operands.out).reason


def test_a_product_before_an_epilogue_has_a_variance_near_one():
    operands: Any = make_operands(Problem.parse("64x64x4096:bf16:nt:epilogue=relu"), CPU)
    assert 0.5 < float((operands.a.double() @ operands.b.double()).std()) < 2


@pytest.mark.parametrize(
    ("problem", "tolerance"),
    [
        ("4x8x64:bf16", 8e-3),
        ("4x8x64:fp16", 1e-3),
        ("4x8x64:fp32", 1e-4),
        ("4x8x64:tf32", 2e-3),
        ("4x8x64:int8", 1e-6),
        ("4x8x64:bf16:nt:out_dtype=fp32", 1e-4),
        ("4x8x64:bf16:nt:epilogue=relu", 1.6e-2),
        ("4x8x64:fp16:nt:epilogue=to(fp32)", 2e-3),
        ("4x8x1024:e4m3:nt:out_dtype=fp32", 4.8e-3),
        ("4x8x64:e4m3:nt:out_dtype=bf16", 8e-3),
        ("4x8x4096:e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32])", 9.6e-3),
        ("4x8x4096:e4m3:nt:accumulation=exact:epilogue=mul(column[fp32]).mul(row[fp32])", 8e-3),
        ("4x8x4096:e4m3:nt:accumulation=exact:epilogue=mul(column[fp32]).mul(row[fp32]).relu", 1.6e-2),
    ],
)
def test_the_tolerance_is_four_times_what_rounding_costs(problem, tolerance):
    work = Problem.parse(problem)
    [expected] = Gemm().expected(work, make_operands(work, CPU, 0))
    assert expected.tolerance == pytest.approx(tolerance)


@pytest.mark.parametrize(("m", "blocks"), [(12, 3), (10, 3), (3, 1)])
def test_each_vector_of_a_gate_is_for_a_block_of_rows(m, blocks):
    problem = Problem.parse(f"{m}x5x7:bf16:nt:epilogue=mul(gate[4])")
    operands: Any = make_operands(problem, CPU)
    (gate,) = operands.further
    assert gate.shape == (blocks, 5)
    rows = torch.stack([gate[i // 4] for i in range(m)])
    product = operands.a.double() @ operands.b.double()
    assert ReferenceResult(problem, operands).check((product * rows).bfloat16()).reason == ""
    assert bool(ReferenceResult(problem, operands).check((product * gate[0]).bfloat16()).reason) is (m > 4)
    assert problem.min_bytes == 2 * (m * 7 + 7 * 5 + m * 5 + blocks * 5)


SCALED = ("mul(column[fp32]).mul(row[fp32])", "mul(scalar[fp32]).mul(scalar2[fp32])", "mul(scalar[fp32])")


@pytest.mark.parametrize("chain", SCALED)
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2", "int8:nt:out_dtype=bf16"])
def test_quantised_operands_use_the_range_of_their_type_and_their_scales_give_a_product_near_one(dtype, chain):
    problem = Problem.parse(f"64x64x4096:{dtype}{'' if ':' in dtype else ':nt'}:epilogue={chain}")
    operands: Any = make_operands(problem, CPU)
    for each in (operands.a, operands.b):
        limits = torch.iinfo(each.dtype) if "int8" in dtype else torch.finfo(each.dtype)
        assert 0.99 * limits.max <= float(each.double().max()) <= limits.max  # saturated, and no NaN
        assert bool(each.double().isfinite().all())
    for scale in operands.further:
        assert scale.dtype == torch.float32
        assert bool((scale > 0).all())
    real = operands.a.double()
    for scale in operands.further[:1]:
        real = real * scale.double()
    right = real @ operands.b.double()
    for scale in operands.further[1:]:
        right = right * scale.double()
    assert 0.2 < float(right.std()) < 5
    assert ReferenceResult(problem, operands).check(right.bfloat16()).reason == ""
