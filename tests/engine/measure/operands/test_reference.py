from __future__ import annotations

from typing import Any

import pytest

from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.gemm.problem import Problem

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmtune.engine.measure.operands.operands import make_operands  # noqa: E402 (it imports torch)
from gemmtune.engine.measure.operands.reference import ReferenceResult  # noqa: E402 (as above)

pytestmark = pytest.mark.slow(15)

CPU = torch.device("cpu")


def prepared(text):
    """The operands, the reference, and the right output of a problem."""
    problem = Problem.parse(text)
    operands: Any = make_operands(problem, CPU)
    right = (operands.a.double() @ operands.b.double()).to(operands.out.dtype)
    return operands, ReferenceResult(problem, operands), right


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(
    ("dtype", "element"), [("bf16", torch.bfloat16), ("fp16", torch.float16), ("tf32", torch.float32)]
)
def test_operands_have_the_problems_sizes_strides_and_dtype(dtype, element, layout):
    operands: Any = make_operands(Problem.parse(f"6x5x7:{dtype}:{layout}"), CPU)
    assert (operands.a.shape, operands.b.shape, operands.out.shape) == ((6, 7), (7, 5), (6, 5))
    assert operands.a.stride() == ((7, 1) if layout[0] == "n" else (1, 6))
    assert operands.b.stride() == ((5, 1) if layout[1] == "n" else (1, 7))
    assert operands.out.stride() == (5, 1)
    assert {t.dtype for t in (operands.a, operands.b, operands.out)} == {element}
    assert sum(tensor.nbytes for tensor in operands.arguments) == (42 + 35 + 30) * element.itemsize


def test_operands_of_bmm_have_a_dimension_of_the_batch():
    operands: Any = make_operands(Problem.parse("3x6x5x7:bf16:tn:bmm"), CPU)
    assert (operands.a.shape, operands.b.shape, operands.out.shape) == ((3, 6, 7), (3, 7, 5), (3, 6, 5))
    assert (operands.a.stride(), operands.b.stride()) == ((42, 1, 6), (35, 5, 1))
    assert operands.arguments == (operands.a, operands.b, operands.out)


@pytest.mark.parametrize(("bias", "shape"), [("vector", (512,)), ("matrix", (256, 512))])
def test_a_bias_is_an_operand_of_its_own(bias, shape):
    operands: Any = make_operands(Problem.parse(f"256x512x64:bf16:nt:addmm:bias={bias}"), CPU)
    *plain, added = operands.arguments
    assert [tensor.shape for tensor in plain] == [(256, 64), (64, 512), (256, 512)]
    assert (added.shape, added.dtype, added.is_contiguous()) == (shape, torch.bfloat16, True)
    assert abs(float(added.double().std()) / 2 - 1) < 0.15  # a quarter of the product's, √64


def test_operands_are_standard_normal():
    operands: Any = make_operands(Problem.parse("512x512x512:fp32:nt"), CPU)
    for values in (operands.a, operands.b):
        assert abs(float(values.mean())) < 0.01
        assert abs(float(values.std()) - 1) < 0.01


@pytest.mark.parametrize(("dtype", "element"), [("e4m3", torch.float8_e4m3fn), ("int8", torch.int8)])
def test_operands_of_8_bits_are_the_rounded_draw(dtype, element):
    operands: Any = make_operands(Problem.parse(f"512x512x512:{dtype}:nt"), CPU)
    scale = 32 if dtype == "int8" else 1
    for values in (operands.a, operands.b):
        assert values.dtype == element
        assert abs(float(values.double().mean())) < 0.01 * scale
        assert abs(float(values.double().std()) / scale - 1) < 0.01
        assert len(values.double().unique()) > 100


def test_operands_are_the_same_twice_whatever_torchs_own_seed():
    problem = Problem.parse("64x48x80:bf16:nt")
    drawn: list[Any] = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        drawn.append(make_operands(problem, CPU))
    drawn.append(make_operands(Problem.parse("64x49x80:bf16:nt"), CPU))
    assert torch.equal(drawn[0].a, drawn[1].a)
    assert torch.equal(drawn[0].b, drawn[1].b)
    assert not torch.equal(drawn[0].a, drawn[0].b.t()[:64])
    assert not torch.equal(drawn[0].a, drawn[2].a)


SIZES = ("64x48x512", "1x1x1", "1x1x4096", "1x512x4096", "512x1x100", "33x65x1", "256x256x3421")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "tf32"])
def test_a_rounded_product_is_right(size, dtype):
    operands, reference, right = prepared(f"{size}:{dtype}:nt")
    for out in (right, operands.a @ operands.b):
        comparison = reference.check(out)
        assert comparison.reason == ""
        assert 0 <= comparison.error_norm < 2e-3


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2", "int8"])
def test_a_product_of_8_bits_is_right_and_one_of_integers_exactly(size, dtype):
    _, reference, right = prepared(f"{size}:{dtype}:nt")
    comparison = reference.check(right)
    assert comparison.reason == ""
    assert comparison.error_norm < (1e-12 if dtype == "int8" else 3e-3)
    if dtype == "int8":
        right[0, 0] += 1 + int(right.double().pow(2).mean() ** 0.5) // 100
        assert reference.check(right).reason


@pytest.mark.parametrize("k", [64, 16384])
def test_sums_of_integers_stay_within_the_range_of_an_fp16_output(k):
    operands, reference, right = prepared(f"64x512x{k}:int8:nt:out_dtype=fp16")
    assert len(operands.a.unique()) > 30
    assert bool(right.isfinite().all())
    assert reference.check(right).reason == ""


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_a_product_of_any_layout_is_right(layout):
    operands, reference, right = prepared(f"100x60x300:bf16:{layout}")
    assert reference.check(right).reason == ""
    assert reference.check(operands.a @ operands.b).reason == ""


@pytest.mark.parametrize("bias", ["vector", "matrix"])
@pytest.mark.parametrize("size", ["64x48x512", "1x1x1", "1x512x28672", "300x1x99"])
def test_a_bias_is_part_of_the_result_and_missed_if_left_out(size, bias):
    operands, reference, product = prepared(f"{size}:bf16:nt:addmm:bias={bias}")
    assert reference.check(torch.addmm(operands.bias, operands.a, operands.b)).reason == ""
    if operands.bias.numel() > 1:  # one value may be near 0
        assert reference.check(product).error_norm > 0.1
        assert reference.check(product).reason.startswith("error norm")


def test_a_bias_of_the_wrong_row_is_caught():
    operands, reference, product = prepared("64x48x28672:bf16:nt:addmm:bias=matrix")
    assert reference.check(product + operands.bias).reason == ""
    assert reference.check(product + operands.bias[0]).reason.startswith("error norm")


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_a_batch_of_products_is_right_and_one_out_of_order_is_caught(layout):
    operands, reference, right = prepared(f"3x30x60x50:bf16:{layout}:bmm")
    assert reference.check(right).reason == ""
    assert reference.check(operands.a @ operands.b).reason == ""
    assert reference.check(right.flip(0)).reason.startswith("error norm")
    right[2, 29, 59] = float("nan")
    assert reference.check(right).reason == "1 of 5400 output elements are NaN or were not written"


def test_bf16_output_has_the_error_of_rounding_and_fp32_has_none():
    # an error uniform in half a step, where a step is 2⁻⁸ to 2⁻⁷ of the value: 2⁻⁸/√12 to 2⁻⁷/√12
    for text, low, high in (("256x256x512:bf16", 1.1e-3, 2.3e-3), ("256x256x512:fp32", 0.0, 1e-12)):
        _, reference, right = prepared(text)
        assert low <= reference.check(right).error_norm <= high


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "tf32"])
@pytest.mark.parametrize("size", ["512x512x512", "1x1x64", "300x7x99"])
def test_one_wrong_element_is_caught(size, dtype):
    _, reference, right = prepared(f"{size}:{dtype}:nt")
    at = divmod(int(right.abs().argmax()), right.shape[1])
    for wrong in (0.0, -float(right[at]), float("inf")):
        out = right.clone()
        out[at] = wrong
        assert reference.check(out).reason


def test_one_wrong_element_of_a_large_output_is_caught_by_its_size():
    _, reference, right = prepared("1024x1024x64:bf16:nt")
    right[1023, 1023] += 12  # 1.5 times the root mean square of an element, √64
    comparison = reference.check(right)
    assert comparison.error_norm < 8e-3  # it drowns in the norm
    assert comparison.reason == "an element is off by 1.50e+00 of the output's root mean square > 4.8e-02"


def test_an_unwritten_element_is_counted():
    _, reference, right = prepared("64x48x512:fp16:tn")
    right[63, 47] = float("nan")
    right[0, 0] = float("nan")
    comparison = reference.check(right)
    assert comparison.reason == "2 of 3072 output elements are NaN or were not written"
    assert comparison.error_norm != comparison.error_norm  # NaN


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32", "tf32"])
def test_a_transposed_output_is_caught(dtype):
    _, reference, right = prepared(f"64x64x512:{dtype}:nt")
    comparison = reference.check(right.t().contiguous())
    assert 1 < comparison.error_norm < 2  # of independent elements: √2
    assert comparison.reason.startswith("error norm 1.")


@pytest.mark.parametrize(("dtype", "k"), [("bf16", 2048), ("fp16", 2048), ("bf16", 8192)])
def test_an_accumulator_of_the_operands_dtype_is_caught(dtype, k):
    operands, reference, right = prepared(f"64x64x{k}:{dtype}:nt")
    total = torch.zeros_like(right)
    for start in range(0, k, 32):  # one step of a kernel with BLOCK_K 32
        step = slice(start, start + 32)
        total = (total.float() + operands.a[:, step].float() @ operands.b[step].float()).to(right.dtype)
    assert reference.check(total).reason.startswith("error norm")


def sum_in_tensor_core(a, b, step, round_off):
    """Products of `step` terms, exact, each added to a sum that `round_off` then makes short; in float64."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
    for start in range(0, a.shape[1], step):
        total = round_off(total, a[:, start : start + step].double(), b[start : start + step].double())
    return total


def to_fp16(total, a, b):
    return (total + a @ b).half().double()


def cut_at_14_bits(total, a, b):
    """Each term loses what lies 13 bits below the largest, as in the tensor cores of Hopper."""
    terms = torch.cat([a[:, :, None] * b, total[:, None, :]], dim=1)
    unit = torch.exp2(terms.abs().amax(1, keepdim=True).clamp_min(1e-30).log2().floor() - 13)
    return ((terms / unit).trunc().sum(1, keepdim=True) * unit).squeeze(1)


@pytest.mark.parametrize("k", [512, 16384])
@pytest.mark.parametrize(
    ("types", "step", "round_off"),
    [
        ("e4m3:nt:out_dtype=fp32", 32, cut_at_14_bits),
        ("e5m2:nt", 32, cut_at_14_bits),
        ("fp16:nt:acc_dtype=fp16", 16, to_fp16),
    ],
)
def test_the_short_sums_of_a_tensor_core_are_right_and_a_dropped_step_of_them_is_not(types, step, round_off, k):
    operands, reference, right = prepared(f"32x32x{k}:{types}")
    comparison = reference.check(sum_in_tensor_core(operands.a, operands.b, step, round_off).to(right.dtype))
    assert comparison.reason == ""
    tail = operands.a[:, -step:].double() @ operands.b[-step:].double()
    assert reference.check((right.double() - tail).to(right.dtype)).reason


@pytest.mark.parametrize("k", [513, 4093])
def test_a_dropped_tail_of_k_is_caught(k):
    operands, reference, right = prepared(f"64x64x{k}:bf16:nt")
    whole = k // 32 * 32
    out = (operands.a[:, :whole].double() @ operands.b[:whole].double()).to(right.dtype)
    assert reference.check(out).reason.startswith("error norm")


def test_tf32_operands_are_right_only_where_the_problem_allows_them():
    for dtype, right in (("tf32", True), ("fp32", False)):
        operands, reference, _ = prepared(f"128x128x1024:{dtype}:nt")
        a, b = (to_tf32(values) for values in (operands.a, operands.b))
        assert (reference.check((a.double() @ b.double()).float()).reason == "") is right


def to_tf32(values):
    """Rounded to 10 bits of mantissa, to nearest."""
    bits = values.contiguous().view(torch.int32)
    return ((bits + (1 << 12)) & ~((1 << 13) - 1)).view(torch.float32).view(values.shape)


def test_a_zero_output_is_caught_at_every_size():
    for size in SIZES:
        _, reference, right = prepared(f"{size}:bf16:nt")
        if float(right.abs().max()) > 0.1:
            assert reference.check(torch.zeros_like(right)).reason


UNUSUAL = [
    "64x48x512:bf16:nt:lda=1024:ldb=520",
    "5x64x48x128:bf16:nn:bmm:lda=640:batch_stride_a=128:batch_stride_b=0",
    "64x48x512:bf16:nt:addmm:alpha=0.01:beta=2",
    *(f"5x64x48x128:bf16:nt:baddbmm:alpha=0.125:bias={bias}" for bias in ("vector", "vectors", "matrix", "matrices")),
]


@pytest.mark.parametrize("problem", UNUSUAL)
def test_views_scalars_and_biases_of_a_batch_are_parts_of_operands_and_result(problem):
    from gemmtune.engine.toolchain import vendor_gemm

    operands, reference, product = prepared(problem)
    problem = Problem.parse(problem)
    assert (operands.a.stride(), operands.b.stride()) == tuple(problem.strides_of(each, problem.m) for each in "ab")
    out = torch.empty_like(operands.out)
    vendor_gemm.multiply(operands.a, operands.b, out, operands.bias, alpha=problem.alpha, beta=problem.beta)
    assert reference.check(out).reason == ""
    if operands.bias is not None:
        for other in (product, product * problem.alpha, product + operands.bias):
            assert reference.check(other).reason
        assert float(out.double().var() / (problem.alpha**2 * problem.k)) < 1.2  # the bias is small beside the product


@pytest.mark.parametrize(
    "problem", ["64x48x512:bf16:nt:addmm:beta=0", "5x64x48x128:bf16:nt:baddbmm:alpha=0.125:beta=0"]
)
def test_nothing_of_a_bias_counts_with_a_beta_of_0(problem):
    from gemmtune.engine.toolchain import vendor_gemm

    operands, reference, product = prepared(problem)
    problem = Problem.parse(problem)
    assert bool(operands.bias.isnan().all())
    assert reference.check(problem.alpha * product).reason == ""
    out = torch.empty_like(operands.out)
    vendor_gemm.multiply(operands.a, operands.b, out, operands.bias, alpha=problem.alpha, beta=problem.beta)
    assert reference.check(out).reason == ""
    assert reference.check(product + 0 * operands.bias).reason  # as Inductor's own template computes it


def test_rows_of_other_strides_have_other_elements_between_them():
    operands: Any = make_operands(Problem.parse("64x48x512:bf16:nt:lda=1024"), CPU)
    whole = operands.a.as_strided((63, 1024), (1024, 1))
    assert abs(float(whole[:, 512:].float().std()) - 1) < 0.05


def test_the_bytes_of_a_matrix_for_a_whole_batch_count_once():
    from gemmtune.engine.measure.operands.operand_sets import _spanned_bytes, _touched_bytes

    operands: Any = make_operands(Problem.parse("5x64x48x128:bf16:nn:bmm:lda=640:batch_stride_b=0"), CPU)
    assert (_touched_bytes(operands.a), _touched_bytes(operands.b)) == (2 * 5 * 64 * 128, 2 * 128 * 48)
    assert (_spanned_bytes(operands.a), _spanned_bytes(operands.b)) == (2 * (319 * 640 + 128), 2 * 128 * 48)


def test_rows_of_attention_that_see_few_keys_may_round_more_and_a_wrong_late_row_is_caught():
    """Weights are rounded as kernels round them; the first query has 20 times larger values than the last ones."""
    causal = Flex.parse("flex:forward:b1:h1:s2048:d32:bf16:mask=causal")
    operands: Any = make_operands(causal, CPU)
    q, k, v = (operands.tensors[name][0, 0].float() for name in "qkv")
    hidden = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
    scores = (q @ k.T * 32**-0.5).masked_fill(hidden, -torch.inf)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    out = ((weights.bfloat16().float() @ v) / weights.sum(-1, keepdim=True)).bfloat16()[None, None]
    reference = ReferenceResult(causal, operands)
    assert reference.check(out).reason == ""
    out[0, 0, 2000] = out[0, 0, 1999]
    assert "an element is off by" in reference.check(out).reason
