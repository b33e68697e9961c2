"""Bits of rows, with kernels that add in orders of their own."""

from __future__ import annotations

import pytest

from gemmtune.engine.records.gemm.problem import Problem

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmtune.engine.measure.operands.row_bits import RowBits  # noqa: E402 (it imports torch)

CPU = torch.device("cpu")
SIZES = (1, 3, 16, 40)


def blocked(block_k):
    """Return a kernel that adds one block of k after another, each element by itself."""

    def kernel(a, b, out, *further):
        total = torch.zeros(out.shape)
        for start in range(0, a.shape[-1], block_k):
            part = torch.zeros(out.shape)
            for k in range(start, min(start + block_k, a.shape[-1])):
                part += a[..., :, k : k + 1].float() * b[..., k : k + 1, :].float()
            total += part
        for operand in further:
            total += operand.float()
        out.copy_(total)

    return kernel


def digest(text, kernel):
    return RowBits(Problem.parse(text), CPU).digest(kernel)


@pytest.mark.parametrize("rest", ["", ":bf16:nt:addmm", ":bf16:nt:addmm:bias=matrix", ":fp16:tn:epilogue=add(matrix)"])
def test_one_order_of_summation_has_equal_bits_at_every_size(rest):
    found = {digest(f"{m}x24x64{rest}", blocked(16)) for m in SIZES}
    assert len(found) == 1
    ((bits, reason),) = found
    assert (len(bits), reason) == (16, "")


def test_a_size_that_is_taken_at_launch_changes_no_bits():
    assert digest("16x24x64:bf16:nt:dynamic_m=true", blocked(16)) == digest("40x24x64", blocked(16))


def test_another_order_of_summation_has_other_bits():
    problem = "16x24x64:fp32:nt"
    assert digest(problem, blocked(16)) != digest(problem, blocked(64))


def test_a_row_that_depends_on_its_place_is_found():
    def kernel(a, b, out):
        blocked(16)(a[:8], b, out[:8])
        blocked(64)(a[8:], b, out[8:])

    assert digest("16x24x64:fp32", kernel) == ("", "8 of 16 equal rows differ in their bits, by place or neighbours")


def test_a_row_that_depends_on_its_neighbours_is_found():
    def kernel(a, b, out):
        blocked(16)(a, b, out)
        out += a.float().sum() * 2.0**-20

    bits, reason = digest("40x24x64:fp32", kernel)
    assert (bits, reason) == ("", "16 of 16 equal rows differ in their bits, by place or neighbours")
