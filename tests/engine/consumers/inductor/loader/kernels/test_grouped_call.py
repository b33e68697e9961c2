"""Calls of a grouped product's binary: what is launched, and what runs instead."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmtune.engine.consumers.inductor.loader.kernels.grouped_call import grouped_call  # noqa: E402 (torch is there)
from gemmtune.engine.tables.kernels.binary import KernelBinary  # noqa: E402

CALL = ["a", "b.mT", "out", ["offs", None]]
ENDS = torch.tensor([3, 3, 8], dtype=torch.int32)


def kernel(call):
    return KernelBinary("gemmtune_quack_grouped", "cute::quack_grouped", "", call, "nt", [], {})


def called(a, b, out, *scales, computes=0.0, ends=ENDS):
    """Call a kernel on the CPU, and return the operands of its launch, if any, which fills its output."""
    launches = []

    def launch(_, named):
        launches.append(named)
        named["out"].fill_(computes)

    result = grouped_call(kernel(CALL))(launch, a, b, *scales, ends, out=out)
    assert result is out
    return launches


def operands(offset=0):
    memory = torch.randn(offset + 8 * 16, dtype=torch.bfloat16)
    return memory[offset:].view(8, 16), torch.randn(3, 16, 8, dtype=torch.bfloat16), torch.empty(8, 8).bfloat16()


def test_a_kernel_that_reads_no_ends_is_none_of_a_grouped_product():
    assert grouped_call(kernel(["a", "b.mT", "out"])) is None


def test_a_launch_has_the_operands_and_the_ends_of_the_groups():
    a, b, out = operands()
    (named,) = called(a, b, out)
    assert [named[name] is each for name, each in (("a", a), ("b", b), ("out", out), ("offs", ENDS))] == [True] * 4


def test_a_product_without_rows_launches_nothing():
    _, b, _ = operands()
    assert called(torch.empty(0, 16).bfloat16(), b, torch.empty(0, 8).bfloat16()) == []
    gradient = torch.ones(3, 16, 8).bfloat16()
    assert called(torch.empty(16, 0).bfloat16(), torch.empty(0, 8).bfloat16(), gradient) == []
    assert not gradient.any()


def test_scales_stand_before_the_ends():
    a, b, out = operands()
    column, row = torch.rand(8), torch.rand(3, 8)
    (named,) = called(a, b, out, column, row)
    assert [named[name] is each for name, each in (("column", column), ("row", row), ("offs", ENDS))] == [True] * 3


@pytest.mark.parametrize("ends", [torch.stack([ENDS, ENDS], 1)[:, 0], ENDS[:1].expand(3)])
def test_ends_that_do_not_lie_one_after_another_are_copied(ends):
    (named,) = called(*operands(), ends=ends)
    assert named["offs"].is_contiguous()
    assert torch.equal(named["offs"], ends)


def test_a_tensor_at_an_odd_address_is_copied_with_a_warning():
    a, b, out = operands(offset=1)
    with pytest.warns(UserWarning, match="multiples of 16 bytes"):
        (named,) = called(a, b, out)
    assert named["a"].data_ptr() % 16 == 0
    assert torch.equal(named["a"], a)
    assert named["b"] is b
    odd = torch.zeros(65, dtype=torch.bfloat16)[1:].view(8, 8)
    with pytest.warns(UserWarning, match="multiples of 16 bytes"):
        called(operands()[0], b, odd, computes=1.0)
    assert (odd == 1).all()
